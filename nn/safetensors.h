#pragma once
#include <functional>
#include <map>
#include <string>

#include <tandem/core/base/files.h>
#include <tandem/core/base/input_file.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/nn/safetensors_header.h>

namespace tandem::nn {

/// A safetensors file, open for reading. The constructor reads and checks the whole header; `read` reads one
/// tensor.
class SafetensorsFile {
 public:
  /// Throws Error, naming the file and the faulty tensor, unless it is a complete, valid safetensors file.
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// Throws Error if the file has no tensor of this name.
  Tensor read(const std::string& name) const;
  StateDict read_all() const;

 private:
  engine::InputFile file_;
  SafetensorsHeader header_;
  std::int64_t data_ = 0;  // where the header ends
};

/// A tensor to write: `write_safetensors` makes it just before it writes it, and releases it afterwards.
struct TensorSource {
  TensorType type;
  std::function<Tensor()> make;
};

/// Writes a safetensors file with these tensors to `sink`, with the metadata that PyTorch's libraries need.
/// `metadata` joins what the header says of the file: "format", and "writer", which is tandem.
void write_safetensors(const std::map<std::string, TensorSource>& tensors, const engine::Sink& sink,
                       const std::map<std::string, std::string>& metadata = {});
void write_safetensors(const StateDict& tensors, const engine::Sink& sink,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tandem::nn
