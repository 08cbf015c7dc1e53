#include "test_files.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace tandem::testing {

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

nlohmann::json read_json(const std::filesystem::path& file) { return nlohmann::json::parse(read_file(file)); }

std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& file) {
  std::vector<nlohmann::json> values;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) values.push_back(nlohmann::json::parse(line));
  return values;
}

std::string with_flipped_bit(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

void write_file(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << bytes;
  EXPECT_TRUE(out.flush().good()) << file;
}

}  // namespace tandem::testing
