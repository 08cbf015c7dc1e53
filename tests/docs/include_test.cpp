// Which folder may include, and call, which: the table of docs/design.md, checked against sources and
// objects.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

// A room and the rooms it may include, besides itself. The rooms of core come one after another.
const std::set<std::string> kGraph{"core/base", "core/graph"};
const std::set<std::string> kCore{"core/base", "core/graph", "core/schedule", "core/runtime"};
const std::set<std::string> kPasses{"core/base",    "core/graph", "core/schedule",
                                    "core/runtime", "ops",        "autograd"};

std::set<std::string> with(std::set<std::string> rooms, const std::set<std::string>& more) {
  rooms.insert(more.begin(), more.end());
  return rooms;
}

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core/base", {}},
    {"core/graph", {"core/base"}},
    {"core/schedule", kGraph},
    {"core/runtime", with(kGraph, {"core/schedule"})},
    {"ops", kCore},
    {"autograd", with(kGraph, {"ops"})},
    {"nn", with(kGraph, {"ops"})},
    {"dist", kPasses},
    {"pipeline", with(kGraph, {"ops", "dist"})},
    {"memory", with(kGraph, {"core/schedule", "ops"})},
    {"plan", with(kPasses, {"dist", "pipeline", "memory"})},
    {"datasets", kGraph},
    {"train", with(kPasses, {"nn", "dist", "pipeline", "memory", "plan", "datasets"})},
};

// "core/base" of "core/base/error.h", "ops" of "ops/cpu/conv.h".
std::string room_of(const std::string& file) {
  const std::size_t first = file.find('/');
  return file.substr(0, file.starts_with("core/") ? file.find('/', first + 1) : first);
}

// Vendor headers, and the files that may include them.
const std::map<std::string, std::string> kVendor = {
    {R"((dnnl|oneapi)[^>]*)", R"(ops/cpu/onednn.*)"},
    {R"(mpi\.h)", R"(dist/mpi.*)"},
    {R"((cuda|cudnn|cublas|nccl)[^>]*)", R"((ops/cuda/.*|core/runtime/cuda_backend.*|dist/nccl.*))"},
};
const std::regex kHeavyInHeaders(R"(fmt/.*|nlohmann/.*|CLI/.*|spdlog/.*|regex|iostream|filesystem)");

std::vector<fs::path> sources(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(TANDEM_SOURCE) / folder))
    if (const auto ext = entry.path().extension();
        ext == ".h" || ext == ".cpp" || ext == ".cu" || ext == ".cuh")
      files.push_back(entry.path());
  return files;
}

std::vector<std::string> includes(const fs::path& file) {
  std::vector<std::string> result;
  std::ifstream in(file);
  const std::regex include(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"].*)");
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, match, include)) result.push_back(match[1]);
  return result;
}

TEST(Includes, FoldersIncludeOnlyWhatTheyMay) {
  int seen = 0;
  for (const auto& [folder, allowed] : kMayInclude)
    for (const auto& file : sources(folder))
      for (const std::string& name : includes(file)) {
        if (!name.starts_with("tandem/")) continue;
        ++seen;
        const std::string other = room_of(name.substr(7));
        EXPECT_TRUE(other == folder || allowed.contains(other))
            << file << " includes <" << name << ">, but " << folder << " may not include " << other;
      }
  EXPECT_GT(seen, 100);
}

// What an object file of the library defines for others, and what it needs from others: nm's T, D, B and R,
// and U.
struct Symbols {
  std::set<std::string> defined, needed;
};

Symbols symbols_of(const fs::path& object) {
  const std::string command = std::string(TANDEM_NM) + " --format=posix '" + object.string() + "'";
  Symbols symbols;
  FILE* const out = popen(command.c_str(), "r");
  std::array<char, 1 << 16> line;
  while (out && std::fgets(line.data(), line.size(), out)) {
    std::istringstream words(line.data());
    std::string name, kind;
    words >> name >> kind;
    if (kind == "U")
      symbols.needed.insert(name);
    else if (kind.size() == 1 && std::string("TDBR").find(kind) != std::string::npos)
      symbols.defined.insert(name);
  }
  EXPECT_TRUE(out && pclose(out) == 0) << command;
  return symbols;
}

// A function can be declared in one room and defined in another, which no include shows.
TEST(Links, FoldersUseOnlyFunctionsOfThoseTheyMayInclude) {
  std::map<std::string, std::string> defined_in;  // symbol -> room
  std::vector<std::pair<fs::path, Symbols>> objects;
  for (const auto& entry : fs::recursive_directory_iterator(TANDEM_OBJECTS)) {
    const std::string file = fs::relative(entry.path(), TANDEM_OBJECTS).generic_string();
    if (entry.path().extension() != ".o" || !kMayInclude.contains(room_of(file))) continue;
    objects.emplace_back(file, symbols_of(entry.path()));
    for (const std::string& symbol : objects.back().second.defined) defined_in[symbol] = room_of(file);
  }
  int seen = 0;
  for (const auto& [file, symbols] : objects)
    for (const std::string& symbol : symbols.needed) {
      const auto found = defined_in.find(symbol);
      const std::string room = room_of(file.string());
      if (found == defined_in.end() || found->second == room) continue;
      ++seen;
      EXPECT_TRUE(kMayInclude.at(room).contains(found->second))
          << file << " uses " << symbol << ", but " << room << " may not use " << found->second;
    }
  EXPECT_GT(seen, 500);
}

TEST(Includes, VendorHeadersStayInBackendFiles) {
  for (const auto& [folder, allowed] : kMayInclude)
    for (const auto& file : sources(folder))
      for (const std::string& name : includes(file))
        for (const auto& [vendor, where] : kVendor)
          if (std::regex_match(name, std::regex(vendor))) {
            const std::string path = fs::relative(file, TANDEM_SOURCE).generic_string();
            EXPECT_TRUE(std::regex_match(path, std::regex(where))) << path << " includes <" << name << ">";
          }
}

TEST(Includes, PublicHeadersPullInNoHeavyHeader) {
  for (const auto& [folder, allowed] : kMayInclude)
    for (const auto& file : sources(folder)) {
      if (file.extension() != ".h") continue;
      if (folder == "datasets") continue;  // paths are std::filesystem's
      const auto names = includes(file);
      const bool backend = std::any_of(names.begin(), names.end(), [](const std::string& name) {
        return std::any_of(kVendor.begin(), kVendor.end(),
                           [&](const auto& v) { return std::regex_match(name, std::regex(v.first)); });
      });
      if (backend) continue;  // a backend's own header, which no public one may include
      for (const std::string& name : includes(file))
        EXPECT_FALSE(std::regex_match(name, kHeavyInHeaders)) << file << " includes <" << name << ">";
    }
}

}  // namespace
