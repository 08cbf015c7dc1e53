#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include <tandem/core/types.h>

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
inline constexpr std::size_t kMostTensors = 100'000;

/// Reads the JSON of a file which holds `data_bytes` more behind it, strictly: no key twice, every byte in
/// exactly one tensor. Throws Error beginning with `file` and naming the tensor concerned.
SafetensorsHeader parse_safetensors_header(const std::string& file, std::span<const char> json,
                                           std::int64_t data_bytes);

/// The file's beginning for these tensors, of which the `begin`s are set: length and JSON, padded with spaces
/// so that what follows lies at a multiple of 8.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace tandem::nn
