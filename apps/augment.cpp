#include "augment.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/tandem.h>

#include "decimal.h"

namespace tandem::apps {
namespace {

struct Named {
  std::string name;
  bool of_pixels;  // false: of normalized values, where 0 is the mean color
  TransformPtr (*make)(std::uint64_t seed);
};
const std::vector<Named>& table() {
  static const std::vector<Named> all = {
      {"pad-crop", true, [](std::uint64_t s) -> TransformPtr { return std::make_shared<RandomCrop>(s); }},
      {"flip", true, [](std::uint64_t s) -> TransformPtr { return std::make_shared<RandomFlip>(s); }},
      {"cutout", false, [](std::uint64_t s) -> TransformPtr { return std::make_shared<Cutout>(s); }},
  };
  return all;
}

std::vector<std::string> parts(const std::string& names) {
  std::vector<std::string> result;
  for (std::size_t at = 0, end; at <= names.size(); at = end + 1) {
    end = std::min(names.find(',', at), names.size());
    result.push_back(names.substr(at, end - at));
  }
  return result;
}

}  // namespace

std::vector<std::string> augmentations() {
  std::vector<std::string> names = {"none"};
  for (const Named& known : table()) names.push_back(known.name);
  return names;
}

void check_augmentations(const std::string& names) {
  if (names == "none") return;
  std::vector<std::string> seen;
  for (const std::string& name : parts(names)) {
    const bool known = std::ranges::find(table(), name, &Named::name) != table().end();
    if (!known || std::ranges::find(seen, name) != seen.end())
      throw Error(fmt::format("'{}': '{}' {}; give one of {}, or several joined by commas, each once", names,
                              name, known ? "is given twice" : "is unknown or cannot be combined",
                              fmt::join(augmentations(), ", ")));
    seen.push_back(name);
  }
}

DatasetPtr augmented(DatasetPtr images, const std::string& names, std::uint64_t seed,
                     const TransformPtr& normalize) {
  const std::vector<std::string> wanted = parts(names);
  const auto add = [&](bool of_pixels) {
    for (const Named& t : table())
      if (t.of_pixels == of_pixels && std::ranges::find(wanted, t.name) != wanted.end())
        images = std::make_shared<MappedDataset>(std::move(images), t.make(seed));
  };
  add(true);
  images = std::make_shared<MappedDataset>(std::move(images), normalize);
  add(false);
  return images;
}

}  // namespace tandem::apps
