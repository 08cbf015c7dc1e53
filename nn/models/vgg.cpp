#include <tandem/nn/models/vgg.h>

#include <tandem/nn/file_layout.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

Initializer of_convolutions(const Vgg16Options& o) {
  return o.torchvision_weights ? kaiming_normal_by_outputs() : kaiming_normal();
}

LinearOptions hidden(std::int64_t in, const Vgg16Options& o, const Shape& image = {}) {
  return {.in = in,
          .out = o.hidden,
          .init = o.torchvision_weights ? normal(0.01) : kaiming_normal(),
          .image = image};
}

LinearOptions head(const Vgg16Options& o) {
  return {.in = o.hidden, .out = o.classes, .init = o.torchvision_weights ? normal(0.01) : Initializer()};
}

}  // namespace

Vgg16::Features::Features(ModuleBase& parent, const Vgg16Options& o) : Module(parent, "features") {
  struct Group {
    int convolutions;
    std::int64_t width;
  };
  std::int64_t in = o.channels;
  int number = 0;  // torchvision counts relu and pooling too
  for (const Group g :
       {Group{2, o.width}, {2, 2 * o.width}, {3, 4 * o.width}, {3, 8 * o.width}, {3, 8 * o.width}}) {
    groups_.emplace_back();
    for (int c = 0; c < g.convolutions; ++c, number += 2) {
      groups_.back().push_back(std::make_unique<Conv2d>(
          *this, std::to_string(number),
          Conv2dOptions{.in = in, .out = g.width, .kernel = 3, .padding = 1, .init = of_convolutions(o)}));
      in = g.width;
    }
    ++number;
  }
}

Tensor Vgg16::Features::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& group : groups_) {
    for (auto& conv : group) h = relu((*conv)(h));
    h = max_pool2d(h, Pool2dOptions(2));
  }
  return h;
}

Vgg16::Classifier::Classifier(ModuleBase& parent, const Vgg16Options& o)
    : Module(parent, "classifier"),
      first_(*this, "0", hidden(8 * o.width * o.cells * o.cells, o, {o.cells, o.cells, 8 * o.width})),
      drop_first_(*this, "2", o.dropout),
      second_(*this, "3", hidden(o.hidden, o)),
      drop_second_(*this, "5", o.dropout),
      head_(*this, "6", head(o)) {}

Tensor Vgg16::Classifier::forward(const Tensor& x) {
  return head_(drop_second_(relu(second_(drop_first_(relu(first_(x)))))));
}

Vgg16::Vgg16(Vgg16Options options)
    : cells_(options.cells), features_(*this, options), classifier_(*this, options) {}

Tensor Vgg16::forward(const Tensor& x) {
  const Tensor image = features_(x);
  const bool fits = image.size(1) == cells_ && image.size(2) == cells_;
  return classifier_(flatten(fits ? image : adaptive_avg_pool2d(image, cells_)));
}

std::vector<FileLayout> Vgg16::file_layouts() const { return {{.library = "torchvision"}}; }

}  // namespace tandem::nn
