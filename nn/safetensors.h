#pragma once
#include <functional>
#include <map>
#include <string>

#include <tandem/core/base/files.h>
#include <tandem/core/base/input_file.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/nn/safetensors_header.h>

namespace tandem::nn {

/// Tensors by name in a file. Its header is read, and checked in full, at once, the tensors one by one when
/// asked for.
class SafetensorsFile {
 public:
  /// Throws Error naming the file, and the tensor concerned, unless it is a whole and valid safetensors file.
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// Throws Error where there is none of this name.
  Tensor read(const std::string& name) const;
  StateDict read_all() const;

 private:
  engine::InputFile file_;
  SafetensorsHeader header_;
  std::int64_t data_ = 0;  // where the header ends
};

/// A tensor to be written: it is made when its turn comes, and given up afterwards.
struct TensorSource {
  TensorType type;
  std::function<Tensor()> make;
};

/// Gives `sink` a safetensors file with these tensors, and the metadata that PyTorch's libraries ask for.
void write_safetensors(const std::map<std::string, TensorSource>& tensors, const engine::Sink& sink);
void write_safetensors(const StateDict& tensors, const engine::Sink& sink);

}  // namespace tandem::nn
