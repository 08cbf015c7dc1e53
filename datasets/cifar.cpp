#include <tandem/datasets/cifar.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/error.h>
#include <tandem/core/rng.h>

namespace tandem {
namespace fs = std::filesystem;

namespace {

struct LabelByte {
  std::string_view name;
  int classes;
};

/// How one of the two data sets lies on disk. A record is the label bytes, of which the last is the
/// one to train on, then the three planes.
struct Format {
  std::string name, subfolder;
  std::vector<LabelByte> label_bytes;
  std::vector<std::string> train_files, test_files;

  std::int64_t record_bytes() const { return std::ssize(label_bytes) + kCifarImageBytes; }
};

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
  fs::directory_iterator(dir, error);
  if (error)
    throw Error(fmt::format("{}: {}; pass the directory that holds CIFAR's .bin files", dir.string(),
                            error.message()));
}

/// Also of a link that leads nowhere: reading it says so.
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

/// The files of one split: the first must exist, the last ones may be absent.
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

std::vector<std::uint8_t> read_file(const fs::path& file, const Format& format) {
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file, error));
  if (error)
    throw Error(fmt::format("{}: cannot be read: {}; put {}'s file here", file.string(), error.message(),
                            format.name));
  if (bytes == 0) throw Error(fmt::format("{}: the file is empty; fetch or write it again", file.string()));

  const std::int64_t record = format.record_bytes();
  if (const std::int64_t over = bytes % record; over != 0)
    throw Error(
        fmt::format("{}: short or oversized: {} bytes are {} whole {}-byte {} records and {} bytes over, "
                    "from offset {}; fetch or write it again",
                    file.string(), bytes, bytes / record, record, format.name, over, bytes - over));

  std::vector<std::uint8_t> content(static_cast<std::size_t>(bytes));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(fmt::format("{}: cannot be opened; check its permissions", file.string()));
  in.read(reinterpret_cast<char*>(content.data()), bytes);
  if (in.gcount() != bytes)
    throw Error(fmt::format("{}: cannot be read beyond offset {} of {}; check the disk, or fetch it again",
                            file.string(), in.gcount(), bytes));
  return content;
}

void append_file(CifarData& data, const fs::path& file, const Format& format) {
  const std::vector<std::uint8_t> content = read_file(file, format);
  const std::int64_t record = format.record_bytes(), count = std::ssize(content) / record;
  constexpr std::int64_t kPlane = kCifarSide * kCifarSide;

  const std::size_t start = data.pixels.size();
  data.pixels.resize(start + static_cast<std::size_t>(count * kCifarImageBytes));
  std::uint8_t* out = data.pixels.data() + start;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::uint8_t* in = content.data() + r * record;
    for (const LabelByte& label : format.label_bytes) {
      if (*in >= label.classes)
        throw Error(fmt::format(
            "{}: record {}, offset {}: {} {} is out of range 0 … {}; the file is damaged or "
            "not {}: fetch it again",
            file.string(), r, in - content.data(), label.name, *in, label.classes - 1, format.name));
      ++in;
    }
    data.labels.push_back(in[-1]);
    for (std::int64_t i = 0; i < kPlane; ++i)  // (C,H,W) -> (H,W,C)
      for (std::int64_t c = 0; c < kCifarChannels; ++c) *out++ = in[c * kPlane + i];
  }
}

CifarData load(const fs::path& dir, CifarSplit split, const Format& format) {
  CifarData data;
  data.classes = format.label_bytes.back().classes;
  for (const auto& file : find_files(dir, format, split)) append_file(data, file, format);
  return data;
}

template <typename T>
void normalise_into(const CifarData& data, std::span<const std::int64_t> indices, std::span<T> out) {
  if (out.size() != indices.size() * kCifarImageBytes)
    throw Error(fmt::format("normalise: {} images need {} values, the batch holds {}; size it (n,32,32,3)",
                            indices.size(), indices.size() * kCifarImageBytes, out.size()));
  T* to = out.data();
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= data.size())
      throw Error(fmt::format("normalise: index {} is out of range; the set has {} images, from 0", index,
                              data.size()));
    const std::uint8_t* from = data.pixels.data() + index * kCifarImageBytes;
    for (std::int64_t pixel = 0; pixel < kCifarSide * kCifarSide; ++pixel)
      for (std::size_t c = 0; c < kCifarChannels; ++c)
        *to++ = static_cast<T>((*from++ / 255.0 - kCifarMean[c]) / kCifarStd[c]);
  }
}

}  // namespace

CifarData load_cifar10(const fs::path& dir, CifarSplit split) { return load(dir, split, kCifar10); }
CifarData load_cifar100(const fs::path& dir, CifarSplit split) { return load(dir, split, kCifar100); }

CifarData load_cifar(const fs::path& dir, CifarSplit split) {
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
  return load(dir, split, ten ? kCifar10 : kCifar100);
}

std::uint64_t CifarData::digest() const {
  constexpr std::size_t kEvery = 1021;  // a prime: other places in each image
  std::string bytes(reinterpret_cast<const char*>(labels.data()), labels.size() * sizeof labels[0]);
  for (std::size_t i = 0; i < pixels.size(); i += kEvery) bytes.push_back(static_cast<char>(pixels[i]));
  return fnv1a(bytes);
}

void normalise(const CifarData& data, std::span<const std::int64_t> indices, std::span<float> out) {
  normalise_into(data, indices, out);
}
void normalise(const CifarData& data, std::span<const std::int64_t> indices, std::span<double> out) {
  normalise_into(data, indices, out);
}

}  // namespace tandem
