#include <tandem/datasets/cifar.h>

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

namespace tandem {
using namespace engine;

namespace fs = std::filesystem;

/// A record is the label bytes, then the three planes. The last label is the one to train on.
struct CifarDataset::Format {
  struct LabelByte {
    std::string_view name;
    int classes;
  };
  std::string name, subfolder;
  std::vector<LabelByte> label_bytes;
  std::vector<std::string> train_files, test_files;

  std::int64_t record_bytes() const { return std::ssize(label_bytes) + kCifarImageBytes; }
};

namespace {

using Format = CifarDataset::Format;

const Format kCifar10{
    "CIFAR-10",
    "cifar-10-batches-bin",
    {{"label", 10}},
    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
    {"test_batch.bin"}};
const Format kCifar100{"CIFAR-100",
                       "cifar-100-binary",
                       {{"coarse label", 20}, {"fine label", 100}},
                       {"train.bin"},
                       {"test.bin"}};

void require_directory(const fs::path& dir) {
  std::error_code error;
  if (const fs::directory_iterator files(dir, error); error)
    throw Error(fmt::format("{}: {}; pass the directory that holds CIFAR's .bin files", dir.string(),
                            error.message()));
}

/// Returns true also for a dangling link, so that reading it reports the error.
bool has_name(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

bool holds_any_file(const fs::path& dir, const Format& format) {
  const auto present = [&](const std::string& file) { return has_name(dir / file); };
  return std::ranges::any_of(format.train_files, present) || std::ranges::any_of(format.test_files, present);
}

bool holds(const fs::path& dir, const Format& format) {
  return holds_any_file(dir, format) || holds_any_file(dir / format.subfolder, format);
}

/// Returns the files of one split. The first must exist; the last ones can be absent.
std::vector<fs::path> find_files(const fs::path& dir, const Format& format, CifarSplit split) {
  require_directory(dir);
  const fs::path folder = holds_any_file(dir, format) ? dir : dir / format.subfolder;
  std::vector<fs::path> found;
  const auto& names = split == CifarSplit::train ? format.train_files : format.test_files;
  for (const auto& name : names)
    if (has_name(folder / name)) found.push_back(folder / name);
  if (found.empty() || found[0] != folder / names[0])
    throw Error(fmt::format("{}: no {} here nor in {}/; unpack the binary version of {} into this directory",
                            dir.string(), names[0], format.subfolder, format.name));
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != folder / names[i])
      throw Error(fmt::format("{}: missing, though {} is there; fetch or write it again",
                              (folder / names[i]).string(), found.back().filename().string()));
  return found;
}

const Format& format_in(const fs::path& dir, CifarKind kind) {
  if (kind != CifarKind::any) return kind == CifarKind::cifar10 ? kCifar10 : kCifar100;
  require_directory(dir);
  const bool ten = holds(dir, kCifar10), hundred = holds(dir, kCifar100);
  if (ten && hundred)
    throw Error(fmt::format("{}: holds both CIFAR-10 and CIFAR-100; pass the folder of the one you mean",
                            dir.string()));
  if (!ten && !hundred)
    throw Error(
        fmt::format("{}: holds neither CIFAR-10 (data_batch_1.bin, …) nor CIFAR-100 (train.bin, …); "
                    "unpack one of their binary versions here",
                    dir.string()));
  return ten ? kCifar10 : kCifar100;
}

void check_labels(const Format& format, const RecordFile& file, std::int64_t record,
                  std::span<const std::uint8_t> bytes) {
  for (std::size_t i = 0; i < format.label_bytes.size(); ++i)
    if (const auto& label = format.label_bytes[i]; bytes[i] >= label.classes)
      throw BadSample(
          fmt::format("{}: record {}, offset {}: {} {} is out of range 0 … {}; the file is damaged or "
                      "not {}: fetch it again",
                      file.path(), record, record * format.record_bytes() + static_cast<std::int64_t>(i),
                      label.name, bytes[i], label.classes - 1, format.name));
}

}  // namespace

TensorType cifar_image_type() { return {DType::u8, {kCifarSide, kCifarSide, kCifarChannels}}; }

CifarDataset::CifarDataset(const fs::path& dir, CifarSplit split, CifarKind kind)
    : format_(format_in(dir, kind)) {
  for (const auto& file : find_files(dir, format_, split)) {
    files_.emplace_back(file, format_.record_bytes(), format_.name);
    size_ += files_.back().records();
  }
}

int CifarDataset::classes() const { return format_.label_bytes.back().classes; }

void CifarDataset::get(std::int64_t, std::int64_t index, Sample& sample) const {
  require_index(*this, index);
  auto file = files_.begin();
  for (; index >= file->records(); ++file) index -= file->records();
  sample.spare.resize(static_cast<std::size_t>(format_.record_bytes()));
  const std::span record(reinterpret_cast<std::uint8_t*>(sample.spare.data()), sample.spare.size());
  file->read(index, record);
  check_labels(format_, *file, index, record);

  constexpr std::int64_t kPlane = kCifarSide * kCifarSide;
  const std::uint8_t* const in = record.data() + format_.label_bytes.size();
  sample.labels.assign(1, in[-1]);
  sample.weights.clear();
  sample.data.resize(kCifarImageBytes);
  auto* out = reinterpret_cast<std::uint8_t*>(sample.data.data());
  for (std::int64_t i = 0; i < kPlane; ++i)  // (C,H,W) -> (H,W,C)
    for (std::int64_t c = 0; c < kCifarChannels; ++c) *out++ = in[c * kPlane + i];
}

MemoryDataset load_cifar(const fs::path& dir, CifarSplit split, BadSamples* bad, CifarKind kind) {
  return MemoryDataset(CifarDataset(dir, split, kind), bad);
}

}  // namespace tandem
