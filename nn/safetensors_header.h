#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include <tandem/core/base/types.h>

namespace tandem::nn {

/// A tensor's type and the position of its bytes in a safetensors file.
struct SafetensorsEntry {
  TensorType type;
  std::int64_t begin = 0;  ///< offset of its first byte from the end of the header
};

/// The header of a safetensors file. The file holds 8 bytes with the length of the JSON, then the JSON (which
/// this struct describes), then the tensors' bytes (huggingface.co/docs/safetensors).
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr std::int64_t kMostHeaderBytes = 100'000'000;  ///< the format's limit
// Tandem's own limits: checking a file takes at most about 50 MB of memory.
inline constexpr std::size_t kMostTensors = 100'000;                   ///< also the limit of metadata keys
inline constexpr std::int64_t kMostNameBytes = std::int64_t{1} << 24;  ///< all names and metadata together
inline constexpr std::int64_t kLongestToken = std::int64_t{1} << 20;   ///< bytes of a name, value or gap

/// Fills `out` with the bytes of the JSON from `offset` on.
using HeaderSource = std::function<void(std::int64_t offset, std::span<std::byte> out)>;

/// Parses `json_bytes` of JSON strictly: no key appears twice, and each of the `data_bytes` that follow it in
/// the file belongs to exactly one tensor. Throws Error beginning with `file` and naming the faulty tensor.
SafetensorsHeader parse_safetensors_header(const std::string& file, std::int64_t json_bytes,
                                           const HeaderSource& source, std::int64_t data_bytes);

/// Returns a name as errors show it, shortened and on one line: a malicious name can have megabytes or lines.
std::string shown(const std::string& name);

/// Returns the length and the JSON that begin the file, padded with spaces so that the data begin at a
/// multiple of 8. Every entry's `begin` must be set.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace tandem::nn
