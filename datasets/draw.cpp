#include <tandem/datasets/draw.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include <tandem/core/base/rng.h>

namespace tandem {
using namespace engine;
namespace {

constexpr float kPi = std::numbers::pi_v<float>;

// ---- forms: signed distance from the outline, negative inside ------------------------------------
// A shape has a circumradius of about 1, a texture a period of 1.

struct Point {
  float x, y;
};

float disc(Point p) { return std::sqrt(p.x * p.x + p.y * p.y) - 0.85f; }

float ring(Point p) { return std::abs(std::sqrt(p.x * p.x + p.y * p.y) - 0.7f) - 0.22f; }

float square(Point p) { return std::max(std::abs(p.x), std::abs(p.y)) - 0.75f; }

float triangle(Point p) {  // equilateral, inradius 1/2
  const float slanted = 0.8660254f * std::abs(p.x) - 0.5f * p.y;
  return std::max(slanted, p.y) - 0.5f;
}

float cross(Point p) {
  const float x = std::abs(p.x), y = std::abs(p.y);
  return std::max(std::max(x, y) - 0.95f, std::min(x, y) - 0.28f);
}

float star(Point p) {  // five points, one upwards: mirrored into half a point, which one line cuts off
  float x = std::abs(p.x), y = p.y;
  constexpr float kCos = 0.80901699f, kSin = 0.58778525f;  // of 36 degrees
  const float first = 2 * std::max(kCos * x - kSin * y, 0.0f);
  x -= first * kCos, y += first * kSin;
  const float second = 2 * std::max(-kCos * x - kSin * y, 0.0f);
  x = std::abs(x + second * kCos), y += second * kSin;
  constexpr float kNormalX = 0.9511f, kNormalY = 0.3087f;  // from the tip (0, 1) to a notch of radius 0.38
  return kNormalX * x + kNormalY * (y - 1);
}

/// Distance to the nearest edge of stripes half a period wide.
float stripe(float x) { return std::abs(x - std::floor(x) - 0.5f) - 0.25f; }

float stripes(Point p) { return stripe(p.y); }

float checkerboard(Point p) {  // exclusive or of two sets of stripes
  const float a = stripe(p.x), b = stripe(p.y);
  return std::max(std::min(a, b), -std::max(a, b));
}

float dots(Point p) {
  const float x = p.x - std::round(p.x), y = p.y - std::round(p.y);
  return std::sqrt(x * x + y * y) - 0.3f;
}

struct Form {
  std::string_view name;
  float (*distance)(Point);
  float min_scale, max_scale;  // pixels per unit of the form's own coordinates
  float mean_angle, max_turn;  // radians
  bool is_texture;             // covers the whole image
};

constexpr float kAnyTurn = kPi, kTurn = kPi / 7, kSlightTurn = kPi / 12;
constexpr std::array<Form, kDrawnClasses> kForms{{
    {"disc", disc, 7.5f, 13, 0, kAnyTurn, false},
    {"ring", ring, 7.5f, 13, 0, kAnyTurn, false},
    {"square", square, 8, 13, 0, kTurn, false},
    {"triangle", triangle, 8.5f, 15, 0, kTurn, false},
    {"cross", cross, 8, 14, 0, kTurn, false},
    {"star", star, 9, 15, 0, kTurn, false},
    {"horizontal_stripes", stripes, 5, 12, 0, kSlightTurn, true},
    {"vertical_stripes", stripes, 5, 12, kPi / 2, kSlightTurn, true},
    {"checkerboard", checkerboard, 7, 14, 0, kTurn, true},
    {"dots", dots, 6, 11, 0, kAnyTurn, true},
}};

// ---- one image ------------------------------------------------------------------------------------

/// Random numbers of one image, one after the other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t index, std::string_view purpose)
      : key_{seed, 0, fnv1a(purpose)}, sample_(static_cast<std::uint64_t>(index)) {}
  float between(float low, float high) { return low + (high - low) * uniform(key_, sample_, element_++); }
  bool chance(float p) { return between(0, 1) < p; }
  std::array<float, 4> four(std::uint64_t quad) const { return uniform4(key_, sample_, quad); }

 private:
  RngKey key_;
  std::uint64_t sample_, element_ = 0;
};

int class_of(std::uint64_t seed, std::int64_t index) {
  std::array<int, kDrawnClasses> order;
  std::iota(order.begin(), order.end(), 0);
  Draws draws(seed, index / kDrawnClasses, "draw_cifar.order");
  for (int last = kDrawnClasses - 1; last > 0; --last)  // Fisher–Yates
    std::swap(order[last], order[static_cast<int>(draws.between(0, static_cast<float>(last + 1)))]);
  return order[index % kDrawnClasses];
}

/// The place of the form. Maps image coordinates to the form's own.
struct Pose {
  float x, y, scale, cosine, sine;

  Pose(const Form& form, Draws& draws) : scale(draws.between(form.min_scale, form.max_scale)) {
    // A shape can lose up to three pixels at the border; a texture can begin anywhere.
    const float room = form.is_texture ? scale : std::max(0.0f, kCifarSide / 2 - scale + 3);
    x = kCifarSide / 2 + draws.between(-room, room);
    y = kCifarSide / 2 + draws.between(-room, room);
    const double angle = form.mean_angle + draws.between(-form.max_turn, form.max_turn);
    cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
  }
  Point operator()(float px, float py) const {
    const float dx = (px - x) / scale, dy = (py - y) / scale;
    return {cosine * dx + sine * dy, cosine * dy - sine * dx};
  }
};

/// Two colors, one brighter than the other in every channel; the foreground is either, equally likely.
struct Colors {
  std::array<float, 3> background, foreground;

  explicit Colors(Draws& draws) {
    std::array<float, 3> direction;
    for (auto& d : direction) d = draws.between(0.1f, 1);
    const float length =
        std::sqrt(direction[0] * direction[0] + direction[1] * direction[1] + direction[2] * direction[2]);
    const float contrast = draws.between(0.35f, 0.9f);
    for (int c = 0; c < 3; ++c) {
      const float half = direction[c] / length * contrast / 2;
      const float middle = draws.between(half, 1 - half);
      background[c] = middle - half, foreground[c] = middle + half;
    }
    if (draws.chance(0.5f)) std::swap(background, foreground);
  }
};

float lerp(float a, float b, float t) { return a + t * (b - a); }

/// Smooth random brightness around 0: values on a lattice, interpolated between its points.
class Clouds {
 public:
  explicit Clouds(Draws& draws) : cell_(draws.between(4.5f, 12)) {
    const float amplitude = draws.chance(0.5f) ? draws.between(0.05f, 0.2f) : 0;
    for (auto& row : lattice_)
      for (auto& value : row) value = amplitude * draws.between(-1, 1);
  }
  float operator()(float px, float py) const {
    const float x = px / cell_, y = py / cell_;
    const int i = static_cast<int>(y), j = static_cast<int>(x);
    const float a = lerp(lattice_[i][j], lattice_[i][j + 1], x - j);
    const float b = lerp(lattice_[i + 1][j], lattice_[i + 1][j + 1], x - j);
    return lerp(a, b, y - i);
  }

 private:
  float cell_;
  std::array<std::array<float, 9>, 9> lattice_;  // 32 / 4.5 cells and one point more
};

}  // namespace

std::array<std::string_view, kDrawnClasses> drawn_class_names() {
  std::array<std::string_view, kDrawnClasses> names;
  std::ranges::transform(kForms, names.begin(), &Form::name);
  return names;
}

int draw_image(std::uint64_t seed, std::int64_t index, std::span<std::uint8_t, kCifarImageBytes> pixels) {
  const int label = class_of(seed, index);
  const Form& form = kForms[label];
  Draws draws(seed, index, "draw_cifar.scene");
  const Pose pose(form, draws);
  const Colors colors(draws);
  const Clouds clouds(draws);
  const float slope_x = draws.between(-0.008f, 0.008f), slope_y = draws.between(-0.008f, 0.008f);
  const float grain = draws.between(0.02f, 0.15f);
  const Draws noise(seed, index, "draw_cifar.noise");

  std::uint8_t* out = pixels.data();
  for (std::int64_t row = 0; row < kCifarSide; ++row)
    for (std::int64_t column = 0; column < kCifarSide; ++column) {
      const float x = static_cast<float>(column) + 0.5f, y = static_cast<float>(row) + 0.5f;
      const float ink = std::clamp(0.5f - form.distance(pose(x, y)) * pose.scale, 0.0f, 1.0f);
      const float light =
          slope_x * (x - kCifarSide / 2) + slope_y * (y - kCifarSide / 2) + clouds(x, y) * (1 - ink);
      const auto random = noise.four(static_cast<std::uint64_t>(row * kCifarSide + column));
      for (int c = 0; c < 3; ++c) {
        const float paint = colors.background[c] + ink * (colors.foreground[c] - colors.background[c]);
        const float value = paint + light + grain * (random[c] + random[3] - 1);
        *out++ = static_cast<std::uint8_t>(std::clamp(255 * value + 0.5f, 0.0f, 255.0f));
      }
    }
  return label;
}

}  // namespace tandem
