#include <tandem/train/event_file.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/files.h>

namespace tandem {
using namespace engine;
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::int64_t kLatest = 9'999'999'999;  // seconds, of ten digits, so that names sort by time

// TFRecord stores checksums in this form, because a checksum over bytes that hold checksums would be weak.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

template <class T> std::string fixed(T value) {  // little-endian
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  return bytes;
}

// Protocol buffers: a field is its number and wire type, then its value.
enum Wire { varint_wire = 0, fixed64_wire = 1, bytes_wire = 2, fixed32_wire = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(std::uint64_t number, Wire wire) { return varint(number << 3 | wire); }
std::string field(std::uint64_t number, std::string_view bytes) {
  return key(number, bytes_wire) + varint(bytes.size()) + std::string(bytes);
}
std::string field(std::uint64_t number, std::int64_t value) {
  return key(number, varint_wire) + varint(static_cast<std::uint64_t>(value));
}
std::string field(std::uint64_t number, double value) {
  return key(number, fixed64_wire) + fixed(std::bit_cast<std::uint64_t>(value));
}
std::string field(std::uint64_t number, float value) {
  return key(number, fixed32_wire) + fixed(std::bit_cast<std::uint32_t>(value));
}

// Event { double wall_time = 1; int64 step = 2; oneof what … }
std::string event(std::int64_t step, const std::string& what) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return field(1, now.count()) + field(2, step) + what;
}

// SourceMetadata { string writer = 1; }, field 10 of Event
std::string writer() { return field(10, field(1, std::string_view("tandem"))); }

// Returns a name that sorts after all existing ones, even within the same second.
std::string next_name(const std::string& directory) {
  std::int64_t second = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  for (const std::string& file : event_files(directory)) {
    const std::string name = fs::path(file).filename().string();
    std::int64_t taken = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), taken);
    if (taken < kLatest) second = std::max(second, taken + 1);
  }
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{}{:010}.{}", kPrefix, second, host.data());
}

}  // namespace

EventFile::EventFile(const std::string& directory, std::int64_t first_step)
    : path_((fs::path(directory) / next_name(directory)).string()) {
  make_directories(Files::system(), directory);
  out_.open(path_, std::ios::binary);
  if (!out_) throw Error(fmt::format("'{}' cannot be written: {}", path_, std::strerror(errno)));
  write(event(0, field(3, std::string_view("brain.Event:2")) + writer()));  // file_version
  // SessionLog { START }: earlier values of this step and later ones do not count
  if (event_files(directory).size() > 1) write(event(first_step, field(7, field(1, std::int64_t{1}))));
}

void EventFile::scalar(std::string_view tag, std::int64_t step, double value) {
  // Summary { Value { string tag = 1; float simple_value = 2; } value = 1; }
  write(event(step, field(5, field(1, field(1, tag) + field(2, static_cast<float>(value))))));
}

// A TFRecord: length, its checksum, the bytes, their checksum.
void EventFile::write(const std::string& event) {
  const std::string length = fixed(static_cast<std::uint64_t>(event.size()));
  out_ << length << fixed(masked(crc32c(length))) << event << fixed(masked(crc32c(event))) << std::flush;
  if (!out_) throw Error(fmt::format("'{}' cannot be written: is the disk full?", path_));
}

bool begins_as_event_file(std::string_view bytes) { return bytes.find(writer()) != std::string_view::npos; }

std::vector<std::string> event_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(directory))
    if (name.starts_with(kPrefix)) files.push_back((fs::path(directory) / name).string());
  return files;
}

}  // namespace tandem
