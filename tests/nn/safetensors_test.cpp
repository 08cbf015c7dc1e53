// The reader of safetensors files accepts whole, valid files and refuses all others quickly.
#include <malloc.h>
#include <sys/stat.h>
#include <algorithm>

#include <ctime>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/nn/safetensors.h>

#include "temporary_directory.h"
#include "test_files.h"
#include "training_run.h"

namespace tandem::nn {
using namespace engine;
namespace {

using testing::TemporaryDirectory;

std::string length(std::uint64_t n) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(n >> (8 * i));
  return bytes;
}

std::string file_of(const std::string& json, std::size_t data) {
  return length(json.size()) + json + std::string(data, '\1');
}

// This program's memory in bytes: VmRSS is the present size, VmHWM the maximum since the last begin_peak().
[[maybe_unused]] long memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return 1024 * std::stol(line.substr(field.size() + 1));
  ADD_FAILURE() << "no " << field;
  return 0;
}
[[maybe_unused]] void begin_peak() {
  malloc_trim(0);  // later allocations must request freed memory again
  std::ofstream("/proc/self/clear_refs") << "5";
}

class Safetensors : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) const {
    testing::write_file(path_, bytes);
    return path_;
  }
  /// The refusal is quick, and its message is one line that names the file.
  void expect_refused(const std::string& bytes, const std::string& word) const {
    write(bytes);
    expect_refused(word);
  }
  void expect_refused(const std::string& word = "") const {
#ifndef TANDEM_SANITIZED  // sanitizers keep freed memory, and are slow
    begin_peak();
    const long before = memory("VmRSS");
#endif
    [[maybe_unused]] const std::clock_t begin = std::clock();  // of this program only
    try {
      SafetensorsFile file(path_);
      ADD_FAILURE() << "the file was accepted";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_NE(std::string::npos, message.find(path_)) << message;
      EXPECT_NE(std::string::npos, message.find(word)) << message;
      EXPECT_EQ(std::string::npos, message.find('\n')) << message;
      EXPECT_LT(message.size(), 600u) << message;
    }
#ifndef TANDEM_SANITIZED
    EXPECT_LT(memory("VmHWM") - before, 64'000'000);
    std::clock_t spent = std::clock() - begin;
    for (int again = 0; again < 2 && spent >= CLOCKS_PER_SEC; ++again)  // a busy core may be half as fast
      spent = std::min(spent, time_to_refuse());
    EXPECT_LT(spent, CLOCKS_PER_SEC);
#endif
  }
  std::clock_t time_to_refuse() const {
    const std::clock_t begin = std::clock();
    EXPECT_THROW(SafetensorsFile file(path_), Error);
    return std::clock() - begin;
  }
  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("f.safetensors");
};

StateDict some_tensors() {
  StateDict all;
  double next = 0;
  for (DType d :
       {DType::b8, DType::f32, DType::bf16, DType::f16, DType::u8, DType::f64, DType::i32, DType::i64})
    for (const Shape& shape : {Shape{}, {3}, {2, 3, 1}, {0, 5}}) {
      Tensor t = Tensor::full({d, shape}, d == DType::b8 ? 1 : ++next);
      all.emplace("a \"name\"\n ü " + to_string(t.type()), t);
    }
  return all;
}

std::string whole_file() {
  std::string bytes;
  write_safetensors(some_tensors(), [&](std::span<const std::byte> piece) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return bytes;
}

TEST_F(Safetensors, RoundTripKeepsEveryTensor) {
  const SafetensorsFile file(write(whole_file()));
  testing::expect_same_state(some_tensors(), file.read_all());
  for (const auto& [name, entry] : file.tensors())
    EXPECT_EQ(0, entry.begin % size_of(entry.type.dtype)) << name;
  EXPECT_THROW(file.read("b"), Error);
}

TEST_F(Safetensors, EmptyFilesAreValid) {
  EXPECT_TRUE(SafetensorsFile(write(file_of("{}", 0))).tensors().empty());
  const SafetensorsFile file(write(file_of(R"({"__metadata__":{"b":"2","a":""}}   )", 0)));
  EXPECT_EQ((std::map<std::string, std::string>{{"a", ""}, {"b", "2"}}), file.metadata());
}

TEST_F(Safetensors, AcceptsTensorsInAnyOrder) {
  const SafetensorsFile file(write(file_of(R"({"b":{"shape":[2],"data_offsets":[1,3],"dtype":"U8"},)"
                                           R"("z":{"dtype":"F32","shape":[0],"data_offsets":[1,1]},)"
                                           R"("a":{"data_offsets":[0,1],"dtype":"BOOL","shape":[]}})",
                                           3)));
  EXPECT_EQ((std::vector<double>{1, 1}), file.read("b").values());
  EXPECT_EQ(0, file.read("z").elements());
}

// {header, bytes of data after it, a word of the error}
struct Malicious {
  std::string json;
  std::size_t data;
  const char* word;
};

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":)" + tensor(dtype, shape, offsets) + "}";
}

// Not JSON, or an object with a key given twice.
std::vector<Malicious> malformed_headers() {
  const std::string fine = tensor(R"("U8")", "[4]", "[0,4]");
  return {
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"\xef\xbb\xbf{}", 0, "does not begin with '{'"},
      {"{", 0, "no JSON"},
      {"{}}", 0, "no JSON"},
      {"{} x", 0, "no JSON"},
      {std::string("{}\0", 3), 0, "byte 2 of its header is zero"},
      {std::string("{\"a\0\":{}}", 9), 0, "zero"},
      {"{\"\xff\":" + fine + "}", 4, "no JSON in UTF-8"},
      {"{\"\xc0\xaf\":" + fine + "}", 4, "no JSON in UTF-8"},
      {R"({"\ud800":)" + fine + "}", 4, "no JSON in UTF-8"},
      {"{'a':1}", 0, "no JSON"},
      {"{/**/}", 0, "no JSON"},
      {R"({"a":)" + fine + ",}", 4, "no JSON"},
      {R"({"a":)" + fine + R"(,"a":)" + fine + "}", 4, "'a' is given twice"},
      {R"({"a":)" + fine + R"(,"\u0061":)" + fine + "}", 4, "'a' is given twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4, "'dtype' is given twice"},
      {R"({"a":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}})", 4, "'shape' is given twice"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}})", 4, "given twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "given twice"},
      {R"({"__metadata__":{"a":"1","a":"1"}})", 0, "'a' twice"},
  };
}

// JSON that does not describe tensors.
std::vector<Malicious> headers_of_wrong_values() {
  return {
      {R"({"__metadata__":{"a":1}})", 0, "1 is not expected"},
      {R"({"__metadata__":{"a":{}}})", 0, "an object is not expected"},
      {R"({"__metadata__":{"a":["b"]}})", 0, "an array is not expected"},
      {R"({"__metadata__":{"a":null}})", 0, "null is not expected"},
      {R"({"__metadata__":"a"})", 0, "'a' is not expected"},
      {R"({"a":1})", 0, "1 is not expected"},
      {R"({"a":[1]})", 0, "an array is not expected"},
      {R"({"a":true})", 0, "true is not expected"},
      {R"({"a":{}})", 0, "lacks one of"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", 4, "lacks one of"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", 4, "unknown key 'x'"},
      {R"({"a":{"dtype":{},"shape":[4],"data_offsets":[0,4]}})", 4, "an object is not expected"},
      {one(R"("F33")", "[1]", "[0,4]"), 4, "dtype 'F33'"},
      {one(R"("u8")", "[4]", "[0,4]"), 4, "dtype 'u8'"},
      {one("8", "[4]", "[0,4]"), 4, "8 is not expected"},
      {one(R"(["U8"])", "[4]", "[0,4]"), 4, "an array is not expected"},
      {one(R"("U8")", "4", "[0,4]"), 4, "4 is not expected"},
      {one(R"("U8")", "[[4]]", "[0,4]"), 4, "an array is not expected"},
      {one(R"("U8")", "[{}]", "[0,4]"), 4, "an object is not expected"},
      {one(R"("U8")", R"(["4"])", "[0,4]"), 4, "'4' is not expected"},
      {one(R"("U8")", "[4.0]", "[0,4]"), 4, "4.0 is not expected"},
      {one(R"("U8")", "[-4]", "[0,4]"), 4, "-4 is not expected"},
      {one(R"("U8")", "[-1,-4]", "[0,4]"), 4, "-1 is not expected"},
      {one(R"("U8")", "[4294967296,4294967296]", "[0,0]"), 0, "product is at most"},
      {one(R"("F64")", "[2305843009213693952]", "[0,0]"), 0, "is not expected"},
      {one(R"("U8")", "[18446744073709551616]", "[0,0]"), 0, "is not expected"},
      {one(R"("U8")", "[18446744073709551615,2]", "[0,4]"), 4, "is not expected"},
      {one(R"("U8")", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "more than 16 axes"},
  };
}

// Tensors whose offsets do not match their bytes.
std::vector<Malicious> headers_of_wrong_places() {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + tensor(R"("U8")", "[4]", a) + R"(,"b":)" + tensor(R"("U8")", "[4]", b) + "}";
  };
  return {
      {one(R"("U8")", "[5]", "[0,4]"), 4, "takes 5 bytes"},
      {one(R"("F32")", "[4]", "[0,4]"), 4, "takes 16 bytes"},
      {one(R"("U8")", "[4]", "[4,0]"), 4, "takes 4 bytes"},
      {one(R"("U8")", "[4]", "[4]"), 4, "two numbers"},
      {one(R"("U8")", "[4]", "[]"), 4, "two numbers"},
      {one(R"("U8")", "[4]", "[0,4,8]"), 4, "two numbers"},
      {one(R"("U8")", "[4]", "[-4,0]"), 4, "-4 is not expected"},
      {one(R"("U8")", "[4]", "[0,4]"), 3, "is it cut short?"},
      {one(R"("U8")", "[4]", "[0,4]"), 5, "the file holds 5"},
      {one(R"("U8")", "[72057594037927936]", "[0,72057594037927936]"), 4, "is it cut short?"},
      {one(R"("U8")", "[4]", "[1,5]"), 5, "begins at byte 1"},
      {two("[0,4]", "[0,4]"), 4, "begins at byte 0"},
      {two("[0,4]", "[2,6]"), 6, "begins at byte 2"},
      {two("[0,4]", "[5,9]"), 9, "begins at byte 5"},
      {two("[0,4]", "[4,8]"), 12, "the file holds 12"},
      {R"({"a":)" + tensor(R"("U8")", "[4]", "[0,4]") + R"(,"b":)" + tensor(R"("U8")", "[0]", "[2,2]") + "}",
       4, "begins at byte 2"},
  };
}

// Headers that take much time or memory to read.
std::vector<Malicious> huge_headers() {
  std::string names = R"({"__metadata__":{"a":"b"})";
  for (std::size_t i = 0; i < 20'000; ++i) names += R"(,"x":1)";
  return {
      {std::string(1'000'000, '{'), 0, "no JSON"},
      {R"({"a":)" + std::string(1'000'000, '['), 0, "an array is not expected"},
      {one(R"("U8")", std::string(1'000'000, '['), "[0,4]"), 4, "an array is not expected"},
      {one(R"("U8")", "[" + std::string(1'000'000, '9') + "]", "[0,4]"), 4, "a number out of range"},
      {one("\"" + std::string(1'000'000, 'x') + "\"", "[4]", "[0,4]"), 4, "is of dtype 'xxx"},
      {R"({")" + std::string(1'000'000, 'x') + R"(":1})", 0, "tensor 'xxx"},
      {names, 0, "1 is not expected"},
      {R"({"__metadata__":{"a":")" + std::string(1'500'000, 'x') + R"("}})", 0, "of more than 1048576 bytes"},
      {R"({"__metadata__":{"a":")" + repeated(R"(\")", 700'000) + R"("}})", 0, "of more than 1048576 bytes"},
      {"{" + std::string(2'000'000, ' ') + "}", 0, "of more than 1048576 bytes"},
      {"{}" + std::string(2'000'000, ' '), 0, "of more than 1048576 bytes"},
      {one(R"("U8")", "[" + std::string(2'000'000, '1') + "]", "[0,4]"), 4, "of more than 1048576 bytes"},
  };
}

std::vector<Malicious> malicious_headers() {
  std::vector<Malicious> all;
  for (auto* some : {malformed_headers, headers_of_wrong_values, headers_of_wrong_places, huge_headers})
    for (Malicious& header : some()) all.push_back(std::move(header));
  return all;
}

TEST_F(Safetensors, RefusesMaliciousHeadersQuicklyAndInLittleMemory) {
  const auto all = malicious_headers();
  ASSERT_GE(all.size(), 70u);
  for (const auto& [json, data, word] : all) {
    SCOPED_TRACE(json.substr(0, 100));
    expect_refused(file_of(json, data), word);
  }
}

// Headers up to the largest allowed size: the reader reads them piece by piece, only as far as needed.
TEST_F(Safetensors, RefusesHugeHeadersQuicklyAndInLittleMemory) {
  const auto numbered = [](const std::string& begin, const std::string& end, std::size_t bytes) {
    std::string json = "{";
    for (std::size_t i = 0; json.size() < bytes; ++i) json += (i ? ",\"" : "\"") + std::to_string(i) + begin;
    return json + end;
  };
  const std::string empty = R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  write(file_of(numbered(empty, "}", 60'000'000), 0));
  expect_refused("more than 100000 tensors");  // of a million
  write(file_of(R"({"__metadata__":)" + numbered(R"(":"")", "}}", 90'000'000), 0));
  expect_refused("__metadata__ has more than 100000 keys");
  write(file_of(numbered(std::string(300, 'x') + empty, "}", 90'000'000), 0));
  expect_refused("names and metadata take more than 16777216 bytes");
  write(file_of(
      numbered("\":" + std::string(1'000'000, ' ') + R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})", "",
               50'000'000),
      0));
  expect_refused("no JSON");
  write(length(100'000'000) + "{");
  std::filesystem::resize_file(path_, 200'000'000);  // of zeros
  expect_refused("byte 1 of its header is zero");
}

TEST_F(Safetensors, RefusesWrongLengths) {
  const std::string rest = file_of("{}", 0).substr(8);
  expect_refused("", "has 0 bytes");
  expect_refused("1234567", "has 7 bytes");
  for (const std::uint64_t n :
       {std::uint64_t{3}, std::uint64_t{100'000'000}, std::uint64_t{100'000'001}, std::uint64_t{1} << 32,
        std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7})
    expect_refused(length(n) + rest, "announces a header of " + std::to_string(n));
}

TEST_F(Safetensors, RefusesPathsThatAreNotFiles) {
  EXPECT_THROW(SafetensorsFile(directory_.path()), Error);
  EXPECT_THROW(SafetensorsFile(directory_.file("none")), Error);
  const std::string pipe = directory_.file("pipe");
  ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
  EXPECT_THROW(SafetensorsFile{pipe}, Error) << "it must not wait for a writer";
}

TEST_F(Safetensors, RefusesAFileCutShortAnywhere) {
  const std::string whole = whole_file();
  write(whole);
  for (std::size_t n = whole.size(); n-- > 0;) {
    std::filesystem::resize_file(path_, n);
    expect_refused();
  }
}

// A flipped bit may leave a valid header, for example with other names. All its tensors still lie within the
// file; the format lets a reader check no more.
TEST_F(Safetensors, SurvivesEveryFlippedBitOfTheHeader) {
  const std::string whole = whole_file();
  std::uint64_t header = 0;
  for (std::size_t i = 8; i-- > 0;) header = header << 8 | static_cast<unsigned char>(whole[i]);
  std::fstream file(write(whole), std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  int accepted = 0;
  for (std::size_t bit = 0; bit < 8 * (8 + header); ++bit) {
    put(bit / 8, whole[bit / 8] ^ (1 << bit % 8));
    try {
      const auto all = SafetensorsFile(path_).read_all();
      ++accepted;
      EXPECT_GE(bit, 64u) << "a changed length must be refused";
      std::int64_t bytes = 0;
      for (const auto& [name, t] : all) bytes += t.type().bytes();
      EXPECT_EQ(whole.size() - 8 - header, static_cast<std::size_t>(bytes));
    } catch (const Error&) {
    }
    put(bit / 8, whole[bit / 8]);
  }
  EXPECT_GT(accepted, 0) << "changes of names cannot be noticed";
}

}  // namespace
}  // namespace tandem::nn
