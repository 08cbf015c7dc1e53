#include "summary_csv.h"

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include <tandem/core/base/files.h>

#include "output_file.h"

namespace tandem::apps {
using namespace engine;
namespace {

std::string header(std::size_t models) {
  std::string text = "of,epoch,batch";  // begins as kTableHead
  for (const char* name : {"train_loss", "test_accuracy", "lr"})
    for (std::size_t m = 0; m < models; ++m)
      text += models == 1 ? fmt::format(",{}", name) : fmt::format(",{}_{}", name, m);
  return text + ",step_ms,images_per_second\n";
}

// Returns the rows of the epochs that ended by then, without the final row of a run that now continues.
std::string rows_until(const std::string& file, std::int64_t batches) {
  std::ifstream in(file);
  std::string rows;
  for (std::string line; batches > 0 && std::getline(in, line) && !in.eof();) {
    std::istringstream cells(line);
    std::string of, epoch, batch;
    std::getline(std::getline(std::getline(cells, of, ','), epoch, ','), batch, ',');
    if (of == "epoch" && std::atoll(batch.c_str()) <= batches) rows += line + "\n";
  }
  require_read(file, in);
  return rows;
}

}  // namespace

SummaryCsv::SummaryCsv(const std::string& file, int models, std::int64_t batches)
    : file_(file), models_(static_cast<std::size_t>(models)) {
  const std::string text = header(models_) + rows_until(file, batches);
  replace_durably(Files::system(), file, [&](const Sink& sink) { sink(std::as_bytes(std::span(text))); });
  out_.open(file, std::ios::app);
}

void SummaryCsv::row(const char* of, const EpochResult& r) {
  if (file_.empty()) return;
  std::string text = fmt::format("{},{},{}", of, r.epoch, r.batches);
  for (const auto* values : {&r.loss, &r.accuracy, &r.lr})
    for (std::size_t m = 0; m < models_; ++m)
      text += m < values->size() ? fmt::format(",{}", (*values)[m]) : ",";
  out_ << fmt::format("{},{},{}\n", text, r.step_ms, r.samples_per_second) << std::flush;
  if (!out_) throw Error(fmt::format("'{}' cannot be written: is the disk full?", file_));
}

}  // namespace tandem::apps
