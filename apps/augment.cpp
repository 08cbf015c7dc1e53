#include "augment.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/tandem.h>

#include "decimal.h"

namespace tandem::apps {
using engine::contains;
namespace {

template <class T> TransformPtr made(std::uint64_t seed) { return std::make_shared<T>(seed); }

struct Named {
  std::string_view name;
  bool of_pixels;  // false: of normalized values, where 0 is the mean color
  TransformPtr (*make)(std::uint64_t seed);
};
constexpr std::array kTransforms{
    Named{"pad-crop", true, made<RandomCrop>},
    Named{"flip", true, made<RandomFlip>},
    Named{"cutout", false, made<Cutout>},
};

}  // namespace

std::vector<std::string> augmentations() {
  std::vector<std::string> names = {"none"};
  for (const Named& known : kTransforms) names.emplace_back(known.name);
  return names;
}

void check_augmentations(const std::string& names) {
  if (names == "none") return;
  std::vector<std::string> seen;
  for (const std::string& name : parts_of(names)) {
    const bool known = contains(kTransforms, name, &Named::name);
    if (!known || contains(seen, name))
      throw Error(fmt::format("'{}': '{}' {}; give one of {}, or several joined by commas, each once", names,
                              name, known ? "is given twice" : "is unknown or cannot be combined",
                              fmt::join(augmentations(), ", ")));
    seen.push_back(name);
  }
}

DatasetPtr augmented(DatasetPtr images, const std::string& names, std::uint64_t seed,
                     const TransformPtr& normalize) {
  const std::vector<std::string> wanted = parts_of(names);
  const auto add = [&](bool of_pixels) {
    for (const Named& t : kTransforms)
      if (t.of_pixels == of_pixels && contains(wanted, t.name))
        images = std::make_shared<MappedDataset>(std::move(images), t.make(seed));
  };
  add(true);
  images = std::make_shared<MappedDataset>(std::move(images), normalize);
  add(false);
  return images;
}

}  // namespace tandem::apps
