#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include <tandem/core/base/types.h>

namespace tandem::nn {

/// Where a tensor's elements are in a safetensors file.
struct SafetensorsEntry {
  TensorType type;
  std::int64_t begin = 0;  ///< of its bytes, counted from the end of the header
};

/// What a safetensors file says of itself: 8 bytes with the length of the JSON that follows, then the JSON,
/// then the tensors' bytes (huggingface.co/docs/safetensors).
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr std::int64_t kMostHeaderBytes = 100'000'000;  ///< that the format allows
// And that Tandem reads, so that no file takes more than some 50 MB before it is known to be good:
inline constexpr std::size_t kMostTensors = 100'000;                   ///< and keys of the metadata
inline constexpr std::int64_t kMostNameBytes = std::int64_t{1} << 24;  ///< of all names and the metadata
inline constexpr std::int64_t kLongestToken = std::int64_t{1} << 20;   ///< of a name, a value, spaces

/// Gives bytes of the JSON from `offset` on.
using HeaderSource = std::function<void(std::int64_t offset, std::span<std::byte> out)>;

/// Reads `json_bytes` of JSON, of a file which holds `data_bytes` more behind it, strictly: no key twice,
/// every byte in exactly one tensor. Throws Error beginning with `file` and naming the tensor concerned.
SafetensorsHeader parse_safetensors_header(const std::string& file, std::int64_t json_bytes,
                                           const HeaderSource& source, std::int64_t data_bytes);

/// A name as errors show it: a malicious one may have megabytes, or lines.
std::string shown(const std::string& name);

/// The file's beginning for these tensors, of which the `begin`s are set: length and JSON, padded with spaces
/// so that what follows lies at a multiple of 8.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace tandem::nn
