#include <tandem/nn/safetensors_header.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>

namespace tandem::nn {
namespace {

using nlohmann::json;
constexpr std::size_t kMostAxes = 16;
constexpr const char* kMetadata = "__metadata__";

// Safetensors files write "f32" as F32 and "bool" as BOOL.
std::string upper(std::string_view name) {
  std::string result(name);
  std::ranges::transform(result, result.begin(), [](char c) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  return result;
}

std::optional<DType> dtype_named(const std::string& name) {
  for (DType d :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8, DType::b8})
    if (upper(name_of(d)) == name) return d;
  return std::nullopt;
}

// Reads the header byte by byte from small pieces: the parser keeps only one token.
class Bytes {
 public:
  Bytes(const std::string& file, std::int64_t size, const HeaderSource& source)
      : file_(file), size_(size), source_(source) {
    if (size_ > 0) fetch();
  }
  bool done() const { return here_ == end_; }
  char current() const { return *here_; }
  void next() {
    follow(*here_);
    if (++here_ != end_) return;
    begin_ += std::ssize(piece_);
    if (begin_ < size_) fetch();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(fmt::format("{}: {}", file_, what)); }
  void fetch() {
    // The current token reaches from `token_` to here at least.
    if (begin_ - token_ > kLongestToken)
      fail(fmt::format("from byte {} on there is a name, a value or a gap of more than {} bytes", token_,
                       kLongestToken));
    piece_.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 16, size_ - begin_)));
    source_(begin_, std::as_writable_bytes(std::span(piece_)));
    // The parser would take a zero byte for the end.
    if (const auto zero = std::ranges::find(piece_, '\0'); zero != piece_.end())
      fail(fmt::format("byte {} of its header is zero", begin_ + (zero - piece_.begin())));
    here_ = piece_.data();
    end_ = here_ + piece_.size();
  }
  // Notes where JSON tokens begin.
  void follow(char c) {
    if (escaped_)
      escaped_ = false;
    else if (c == '"')
      in_text_ = !in_text_, begin_token();
    else if (in_text_)
      escaped_ = c == '\\';
    else if (c == ',' || c == ':' || c == '{' || c == '}' || c == '[' || c == ']')
      begin_token();
  }
  void begin_token() { token_ = begin_ + (here_ - piece_.data()); }
  const std::string& file_;
  const std::int64_t size_;
  const HeaderSource& source_;
  std::vector<char> piece_;
  std::int64_t begin_ = 0, token_ = 0;  // offsets of the piece, and of the current token
  const char *here_ = nullptr, *end_ = nullptr;
  bool in_text_ = false, escaped_ = false;
};

// The input iterator that the parser needs; the end iterator has no Bytes.
struct ByteIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  Bytes* bytes = nullptr;
  char operator*() const { return bytes->current(); }
  ByteIterator& operator++() {
    bytes->next();
    return *this;
  }
  bool operator==(const ByteIterator& other) const { return ended() == other.ended(); }
  bool ended() const { return !bytes || bytes->done(); }
};

// The text as a JSON string.
std::string quoted(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error("a tensor's name is not UTF-8, which safetensors files need");
  }
}

// Takes the parser's events one by one, because a parsed document no longer shows keys that appeared twice.
class Reader final : public nlohmann::json_sax<json> {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  bool start_object(std::size_t) override {
    if (depth_ == 2) refuse("an object");
    ++depth_;
    if (depth_ == 2) begin_ = end_ = -1, type_ = {}, fields_.clear();
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1 && !in_metadata()) add_tensor();
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) {
      if (header_.tensors.contains(name) || (has_metadata_ && name == kMetadata))
        fail(fmt::format("the name '{}' is given twice", shown(name)));
      has_metadata_ |= name == kMetadata;
      keep(name);
      tensor_ = name;
    } else if (in_metadata()) {
      key_ = name;
      if (header_.metadata.contains(name))
        fail(fmt::format("__metadata__ has the key '{}' twice", shown(name)));
      if (header_.metadata.size() == kMostTensors)
        fail(fmt::format("__metadata__ has more than {} keys", kMostTensors));
      keep(name);
    } else {
      key_ = name;
      if (name != "dtype" && name != "shape" && name != "data_offsets")
        fail(fmt::format("tensor '{}': unknown key '{}'; there are: dtype, shape, data_offsets",
                         shown(tensor_), shown(name)));
      if (!fields_.insert(name).second)
        fail(fmt::format("tensor '{}': the key '{}' is given twice", shown(tensor_), name));
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata() || key_ == "dtype" || !list_.empty()) refuse("an array");
    list_ = key_;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    if (list_ == "shape") {
      type_.shape = numbers_;
    } else {
      if (numbers_.size() != 2)
        fail(fmt::format("tensor '{}': data_offsets are two numbers", shown(tensor_)));
      begin_ = numbers_[0], end_ = numbers_[1];
    }
    list_.clear();
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_.empty() || value > std::uint64_t{1} << 56) refuse(fmt::format("{}", value));
    if (numbers_.size() == kMostAxes)
      fail(fmt::format("tensor '{}' has more than {} axes", shown(tensor_), kMostAxes));
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata()) {
      keep(value);
      header_.metadata.emplace(key_, value);
    } else if (depth_ == 2 && key_ == "dtype" && list_.empty()) {
      const auto dtype = dtype_named(value);
      if (!dtype)
        fail(fmt::format("tensor '{}' is of dtype '{}'; known are F32, BF16, F16, F64, I32, I64, U8, BOOL",
                         shown(tensor_), shown(value)));
      type_.dtype = *dtype;
    } else {
      refuse(fmt::format("'{}'", shown(value)));
    }
    return true;
  }
  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { refuse(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { refuse(shown(text)); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(fmt::format("the header is no JSON in UTF-8, or has a number out of range, at its byte {}",
                     position));
  }

  SafetensorsHeader finish(std::int64_t data_bytes) {
    std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
    for (const auto& tensor : header_.tensors) order.push_back(&tensor);
    // If two tensors begin at the same byte, the shorter one is empty; it comes first.
    std::ranges::sort(order, {},
                      [](const auto* t) { return std::pair(t->second.begin, t->second.type.bytes()); });
    std::int64_t end = 0;
    for (const auto* tensor : order) {
      const auto& [name, entry] = *tensor;
      if (entry.begin != end)
        fail(fmt::format("tensor '{}' begins at byte {} of the data, but the data before it ends at {}",
                         shown(name), entry.begin, end));
      end += entry.type.bytes();
      if (end > data_bytes)
        fail(fmt::format(
            "tensor '{}' ends at byte {} of the data, but the file holds {} bytes of data: is it cut short?",
            shown(name), end, data_bytes));
    }
    if (end != data_bytes) fail(fmt::format("the tensors take {} bytes, the file holds {}", end, data_bytes));
    return std::move(header_);
  }

 private:
  bool in_metadata() const { return tensor_ == kMetadata; }
  void keep(const std::string& text) {
    kept_ += std::ssize(text);
    if (kept_ > kMostNameBytes)
      fail(fmt::format("its names and metadata take more than {} bytes", kMostNameBytes));
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(fmt::format("{}: {}", file_, what)); }
  [[noreturn]] void refuse(const std::string& value) const {
    if (depth_ == 0) fail(fmt::format("the header is {}, not an object", value));
    fail(fmt::format("tensor '{}'{}: {} is not expected there", shown(tensor_),
                     depth_ == 2 ? fmt::format(", '{}'", shown(key_)) : "", value));
  }
  void add_tensor() {
    if (header_.tensors.size() == kMostTensors) fail(fmt::format("more than {} tensors", kMostTensors));
    if (fields_.size() != 3)
      fail(fmt::format("tensor '{}' lacks one of dtype, shape, data_offsets", shown(tensor_)));
    std::int64_t bytes = 0;
    try {
      bytes = type_.bytes();
    } catch (const Error& e) {
      fail(fmt::format("tensor '{}': {}", shown(tensor_), e.what()));
    }
    if (begin_ > end_ || end_ - begin_ != bytes)
      fail(fmt::format("tensor '{}' is {}, which takes {} bytes; its data_offsets [{}, {}] hold {}",
                       shown(tensor_), to_string(type_), bytes, begin_, end_, end_ - begin_));
    header_.tensors.emplace(tensor_, SafetensorsEntry{type_, begin_});
  }

  const std::string& file_;
  SafetensorsHeader header_;
  int depth_ = 0;                    // number of open objects: the header, and in it a tensor or the metadata
  std::string tensor_, key_, list_;  // key at depth 1; key at depth 2; key of the open array
  std::set<std::string> fields_;
  bool has_metadata_ = false;
  std::int64_t kept_ = 0;  // bytes of names and metadata
  std::vector<std::int64_t> numbers_;
  TensorType type_;
  std::int64_t begin_ = -1, end_ = -1;
};

}  // namespace

std::string shown(const std::string& name) {
  constexpr std::size_t kShown = 60;
  std::string text = name.size() <= kShown ? name : name.substr(0, kShown) + "...";
  std::ranges::replace_if(
      text, [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, '?');
  return text;
}

SafetensorsHeader parse_safetensors_header(const std::string& file, std::int64_t json_bytes,
                                           const HeaderSource& source, std::int64_t data_bytes) {
  Bytes bytes(file, json_bytes, source);
  // The parser would skip a byte order mark.
  if (bytes.done() || bytes.current() != '{')
    throw Error(fmt::format("{}: its header does not begin with '{{'", file));
  Reader reader(file);
  json::sax_parse(ByteIterator{&bytes}, ByteIterator{}, &reader);
  return reader.finish(data_bytes);
}

// Built as text, because nlohmann's objects end the process if memory runs out.
std::string format_safetensors_header(const SafetensorsHeader& header) {
  std::string text;
  const auto begin = [&](const std::string& name) { text += (text.empty() ? "" : ",") + quoted(name) + ":"; };
  if (!header.metadata.empty()) {
    begin(kMetadata);
    char between = '{';
    for (const auto& [key, value] : header.metadata)
      text += std::exchange(between, ',') + quoted(key) + ":" + quoted(value);
    text += '}';
  }
  for (const auto& [name, entry] : header.tensors) {
    if (name == kMetadata) throw Error(fmt::format("a tensor cannot be called {}", kMetadata));
    begin(name);
    text += fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        upper(name_of(entry.type.dtype)), fmt::join(entry.type.shape, ","), entry.begin,
                        entry.begin + entry.type.bytes());
  }
  text = "{" + text + "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (std::ssize(text) > kMostHeaderBytes)
    throw Error(fmt::format("the names of {} tensors need a header of {} bytes; safetensors files allow {}",
                            header.tensors.size(), text.size(), kMostHeaderBytes));
  std::string result(8, '\0');
  const std::uint64_t length = text.size();
  for (std::size_t i = 0; i < 8; ++i) result[i] = static_cast<char>(length >> (8 * i));
  return result + text;
}

}  // namespace tandem::nn
