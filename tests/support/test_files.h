#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tandem::testing {

/// The bytes of a file; fails the test if it cannot be opened.
std::string read_file(const std::filesystem::path& file);
nlohmann::json read_json(const std::filesystem::path& file);
/// The values of a file with one JSON value per line.
std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& file);
/// `bytes` with bit number `bit` changed.
std::string with_flipped_bit(std::string bytes, std::size_t bit);
/// Replaces the contents of a file, which exists afterwards.
void write_file(const std::filesystem::path& file, const std::string& bytes);

}  // namespace tandem::testing
