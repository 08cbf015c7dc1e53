#include <tandem/nn/safetensors.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tandem::nn {
using namespace engine;
namespace {

constexpr std::int64_t kLengthBytes = 8;

// The length of the JSON, in bytes.
std::int64_t header_bytes(const InputFile& file) {
  std::array<std::byte, kLengthBytes> bytes;
  if (file.size() < kLengthBytes)
    throw Error(
        fmt::format("safetensors file '{}' has {} bytes; the length of the header alone takes 8 bytes",
                    file.path(), file.size()));
  file.read(0, bytes);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) length |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  constexpr std::uint64_t kZip = 0x04034b50;  // PK, 3, 4
  if ((length & 0xffffffff) == kZip)
    throw Error(
        fmt::format("'{}' is a file of torch.save, or another zip: write the weights in Python by "
                    "safetensors.torch.save_file(state_dict, ...)",
                    file.path()));
  if (length > static_cast<std::uint64_t>(std::min(kMostHeaderBytes, file.size() - kLengthBytes)))
    throw Error(fmt::format(
        "safetensors file '{}' announces a header of {} bytes, but it has {} bytes in all, and a header has "
        "at most {}: it is not a safetensors file, or it is cut short",
        file.path(), length, file.size(), kMostHeaderBytes));
  return static_cast<std::int64_t>(length);
}

std::span<std::byte> bytes_of(Tensor& t) { return t.bytes(); }

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_("safetensors file", path) {
  const std::int64_t json_bytes = header_bytes(file_);
  const auto json = [&](std::int64_t offset, std::span<std::byte> out) {
    file_.read(kLengthBytes + offset, out);
  };
  data_ = kLengthBytes + json_bytes;
  header_ = parse_safetensors_header(fmt::format("safetensors file '{}'", path), json_bytes, json,
                                     file_.size() - data_);
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end())
    throw Error(fmt::format("safetensors file '{}' has no tensor '{}'", path(), name));
  Tensor t = Tensor::empty(found->second.type);
  file_.read(data_ + found->second.begin, bytes_of(t));
  return t;
}

StateDict SafetensorsFile::read_all() const {
  StateDict all;
  for (const auto& [name, entry] : header_.tensors) all.emplace(name, read(name));
  return all;
}

// The tensors with the largest elements come first, so that each lies at a multiple of its element size.
void write_safetensors(const std::map<std::string, TensorSource>& tensors, const Sink& sink,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  for (const auto& [key, value] : metadata) header.metadata[key] = value;
  header.metadata["format"] = "pt";
  header.metadata["writer"] = "tandem";
  std::vector<std::pair<const TensorSource*, SafetensorsEntry*>> order;
  for (const auto& [name, tensor] : tensors)
    order.emplace_back(&tensor, &(header.tensors[name] = {tensor.type, 0}));
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const auto& t) { return size_of(t.first->type.dtype); });
  std::int64_t begin = 0;
  for (auto& [tensor, entry] : order) {
    entry->begin = begin;
    begin += tensor->type.bytes();
  }
  const std::string beginning = format_safetensors_header(header);
  sink(std::as_bytes(std::span(beginning)));
  for (auto& [tensor, entry] : order) {
    Tensor made = tensor->make();
    sink(bytes_of(made));
  }
}

void write_safetensors(const StateDict& tensors, const Sink& sink,
                       const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorSource> sources;
  for (const auto& [name, tensor] : tensors)
    sources.emplace(name, TensorSource{tensor.type(), [tensor = tensor] { return tensor; }});
  write_safetensors(sources, sink, metadata);
}

}  // namespace tandem::nn
