#include <tandem/datasets/cifar_writer.h>

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/files.h>
#include <tandem/core/base/input_file.h>
#include <tandem/datasets/cifar.h>
#include <tandem/datasets/draw.h>

namespace tandem {
namespace fs = std::filesystem;

namespace {

constexpr int kTrainFiles = 5;
constexpr std::string_view kTestFile = "test_batch.bin", kMetaFile = "batches.meta.txt";
/// Says which files were drawn: of each, the checksum and the name, as `xxhsum -H3` prints them.
constexpr std::string_view kDrawnFile = "drawn.xxh3";

/// A file that gets its name when `publish` is called. Without that call it leaves nothing.
class NewFile {
 public:
  explicit NewFile(const fs::path& path) : path_(path), unfinished_(path.string() + engine::kUnfinishedFile) {
    std::error_code ignored;
    if (!fs::is_directory(fs::symlink_status(unfinished_, ignored)))
      fs::remove(unfinished_, ignored);  // else what it links to would be written
    out_.open(unfinished_, std::ios::binary);
    check("cannot be created");
  }
  NewFile(const NewFile&) = delete;
  ~NewFile() {
    std::error_code ignored;
    fs::remove(unfinished_, ignored);
  }
  void write(const void* bytes, std::int64_t count) {
    out_.write(static_cast<const char*>(bytes), count);
    check("cannot be written");
  }
  void close() {
    out_.close();
    check("cannot be written");
  }
  std::string name() const { return path_.filename().string(); }
  std::string checksum() const {
    return engine::checksum_of(engine::InputFile("drawn file", unfinished_.string()));
  }
  void publish() {
    std::error_code error;
    fs::rename(unfinished_, path_, error);
    if (error) throw Error(fmt::format("{}: cannot be put in place: {}", path_.string(), error.message()));
  }

 private:
  void check(std::string_view what) {
    if (!out_)
      throw Error(
          fmt::format("{}: {}; check the directory's permissions and the free space", path_.string(), what));
  }
  fs::path path_, unfinished_;
  std::ofstream out_;
};

/// Throws Error if the directory holds anything except leftovers of an interrupted run.
void require_empty(const fs::path& dir) try {
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().extension() != engine::kUnfinishedFile)
      throw Error(
          fmt::format("{}: holds {} already; choose an empty directory, or force the replacement of "
                      "CIFAR-10's files in this one (--force)",
                      dir.string(), entry.path().filename().string()));
} catch (const fs::filesystem_error& e) {
  throw Error(
      fmt::format("{}: cannot be listed ({}); check its permissions", dir.string(), e.code().message()));
}

std::vector<std::string> names_of_set() {
  std::vector<std::string> names{std::string(kMetaFile), std::string(kTestFile)};
  for (int i = 0; i < kTrainFiles; ++i) names.push_back(fmt::format("data_batch_{}.bin", i + 1));
  return names;
}

std::string meta_text() { return fmt::format("{}\n", fmt::join(drawn_class_names(), "\n")); }

/// The checksums of files, by their names. A file can have two: the one that it had and the one that it gets.
using Drawn = std::multimap<std::string, std::string>;

/// Returns the checksums of the files that were drawn; none if the list has other lines.
Drawn drawn_files(const fs::path& dir) {
  const std::vector<std::string> names = names_of_set();
  Drawn checksums;
  std::ifstream in(dir / kDrawnFile);
  for (std::string line; std::getline(in, line);) {
    const auto gap = line.find("  ");
    const std::string name = gap == std::string::npos ? "" : line.substr(gap + 2);
    if (std::ranges::find(names, name) == names.end()) return {};
    checksums.emplace(name, line.substr(0, gap));
  }
  return checksums;
}

void write_drawn_files(const fs::path& dir, const Drawn& checksums) {
  std::string text;
  for (const auto& [name, checksum] : checksums) text += fmt::format("{}  {}\n", checksum, name);
  NewFile list(dir / kDrawnFile);
  list.write(text.data(), std::ssize(text));
  list.close();
  list.publish();
}

/// Throws Error if the directory holds files with a set's names that were not drawn, or were changed since:
/// CIFAR-10's own images cannot be drawn again.
void require_drawn_set(const fs::path& dir) {
  const auto drawn = drawn_files(dir);
  const auto is_drawn = [&](const std::string& name) {
    std::error_code none;
    if (!drawn.contains(name) || !fs::is_regular_file(fs::symlink_status(dir / name, none))) return false;
    const std::string is = engine::checksum_of(engine::InputFile("drawn file", (dir / name).string()));
    const auto [begin, end] = drawn.equal_range(name);
    return std::any_of(begin, end, [&](const auto& said) { return said.second == is; });
  };
  for (const std::string& name : names_of_set())
    if (std::error_code none; fs::exists(fs::symlink_status(dir / name, none)) && !is_drawn(name))
      throw Error(fmt::format(
          "{}: its {} was not drawn here, which {} would say, so it stays; choose another directory, or remove it",
          dir.string(), name, kDrawnFile));
  if (std::error_code none; drawn.empty() && fs::exists(fs::symlink_status(dir / kDrawnFile, none)))
    throw Error(
        fmt::format("{}: its {} lists no drawn files, so it stays; choose another directory, or remove it",
                    dir.string(), kDrawnFile));
}

void prepare_directory(const fs::path& dir, bool force) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error || !fs::is_directory(dir))
    throw Error(fmt::format("{}: cannot be created as a directory ({}); choose another", dir.string(),
                            error ? error.message() : "a file has this name"));
  force ? require_drawn_set(dir) : require_empty(dir);
}

// Images can be more than any disk holds.
void require_space(const fs::path& dir, std::int64_t images) {
  std::error_code error;
  const auto available = static_cast<double>(fs::space(dir, error).available);
  const double needed = static_cast<double>(images) * (1 + kCifarImageBytes);
  if (!error && needed > available)
    throw Error(fmt::format("{}: {} images need {:.4g} GB, and {:.4g} GB are free", dir.string(), images,
                            needed / 1e9, available / 1e9));
}

void write_records(NewFile& file, std::uint64_t seed, std::int64_t first_index, std::int64_t count,
                   const std::function<void()>& written) {
  constexpr std::int64_t kPlane = kCifarSide * kCifarSide;
  std::array<std::uint8_t, kCifarImageBytes> image;
  std::array<std::uint8_t, 1 + kCifarImageBytes> record;
  for (std::int64_t i = 0; i < count; ++i) {
    record[0] = static_cast<std::uint8_t>(draw_image(seed, first_index + i, image));
    for (std::int64_t p = 0; p < kPlane; ++p)  // (H,W,C) -> (C,H,W)
      for (std::int64_t c = 0; c < kCifarChannels; ++c)
        record[1 + c * kPlane + p] = image[p * kCifarChannels + c];
    file.write(record.data(), std::ssize(record));
    if (written) written();
  }
  file.close();
}

}  // namespace

void write_cifar10(const fs::path& dir, std::int64_t train_images, std::int64_t test_images,
                   std::uint64_t seed, bool force, const std::function<void()>& written) {
  if (train_images <= 0 || train_images % kTrainFiles != 0 || test_images <= 0)
    throw Error(
        fmt::format("{} training and {} test images; both must be positive, and the first a "
                    "multiple of {}, the number of files",
                    train_images, test_images, kTrainFiles));
  prepare_directory(dir, force);
  const auto lock = engine::lock_directory(dir.string());
  if (!lock)
    throw Error(fmt::format("{}: another process is writing there; choose another directory", dir.string()));
  require_space(dir, train_images + test_images);

  std::deque<NewFile> files;
  NewFile& meta = files.emplace_back(dir / kMetaFile);
  const std::string text = meta_text();
  meta.write(text.data(), std::ssize(text));
  meta.close();
  const std::int64_t share = train_images / kTrainFiles;
  for (int i = 0; i < kTrainFiles; ++i)
    write_records(files.emplace_back(dir / fmt::format("data_batch_{}.bin", i + 1)), seed, i * share, share,
                  written);
  write_records(files.emplace_back(dir / kTestFile), seed, kFirstDrawnTestIndex, test_images, written);
  prepare_directory(dir, force);  // other files may have come meanwhile
  Drawn drawn;
  for (const NewFile& file : files) drawn.emplace(file.name(), file.checksum());
  Drawn with_earlier = drawn_files(dir);  // so that a kill leaves no file that the list does not say
  with_earlier.insert(drawn.begin(), drawn.end());
  write_drawn_files(dir, with_earlier);
  for (NewFile& file : files) file.publish();
  write_drawn_files(dir, drawn);
}

}  // namespace tandem
