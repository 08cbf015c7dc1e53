// Compares a linear layer, forward and backward, with the three matrix products that it consists of. oneDNN
// alone computes these on plain arrays, in turn with a Program that also adds the bias and sums its gradient.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include <tandem/engine.h>
#include <tandem/ops/cpu/onednn.h>

#include "command_line.h"
#include "measure.h"

namespace tandem::bench {
using namespace engine;
namespace {

struct Options {
  std::vector<std::string> sizes = {"128x2048x2048", "512x1024x1024", "128x4096x4096", "8192x512x2048"};
  int rounds = 15, threads = 0;
};

struct Size {
  std::int64_t rows, in, out;
};

Size parse(const std::string& text) {
  Size s{};
  char end = 0;
  if (std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &s.rows, &s.in, &s.out, &end) != 3 ||
      std::min({s.rows, s.in, s.out}) < 1)
    throw Error("'" + text + "' is not rows x inputs x outputs, such as 128x2048x2048");
  return s;
}

// A matrix of small numbers for oneDNN, as it is in memory or transposed.
struct Matrix {
  std::int64_t rows, columns;
  Buffer buffer;
  Matrix(std::int64_t height, std::int64_t width)
      : rows(height), columns(width), buffer(rows * columns * static_cast<std::int64_t>(sizeof(float))) {
    std::fill_n(reinterpret_cast<float*>(buffer.data()), rows * columns, 1e-3F);
  }
  onednn::Operand plain() const { return {DType::f32, {rows, columns}, {columns, 1}}; }
  onednn::Operand turned() const { return {DType::f32, {columns, rows}, {1, columns}}; }
};

// The three products of a linear layer, as oneDNN computes them.
class Products {
 public:
  Products(const Size& s, int threads)
      : x_(s.rows, s.in), w_(s.out, s.in), y_(s.rows, s.out), grad_x_(s.rows, s.in), grad_w_(s.out, s.in) {
    add(x_, x_.plain(), w_, w_.turned(), y_, threads);
    add(y_, y_.plain(), w_, w_.plain(), grad_x_, threads);
    add(y_, y_.turned(), x_, x_.plain(), grad_w_, threads);
  }

  double seconds() const {
    const double begin = steady_seconds();
    for (const Product& p : products_)
      p.primitive->require_success(p.primitive->run(p.operands, p.workspace.data()));
    return steady_seconds() - begin;
  }

 private:
  struct Product {
    onednn::PrimitivePtr primitive;
    std::vector<void*> operands;
    Buffer workspace;
  };

  void add(const Matrix& a, const onednn::Operand& a_form, const Matrix& b, const onednn::Operand& b_form,
           const Matrix& c, int threads) {
    Product p{onednn::matmul(a_form, b_form, nullptr, c.plain(), {threads}),
              {a.buffer.data(), b.buffer.data(), c.buffer.data()},
              {}};
    if (!p.primitive) throw Error("this build of Tandem has no oneDNN to compare with");
    p.workspace = Buffer(p.primitive->workspace());
    products_.push_back(std::move(p));
  }

  Matrix x_, w_, y_, grad_x_, grad_w_;
  std::vector<Product> products_;
};

// Computes the layer's result, and the gradients of its mean squared error by x, weight and bias.
Program forward_and_backward(const Size& s, int threads) {
  Graph graph;
  std::vector<ValueId> wrt;
  ValueId loss = -1;
  {
    Trace trace(graph);
    const Tensor x = trace.input("x", {DType::f32, {s.rows, s.in}}),
                 weight = trace.input("weight", {DType::f32, {s.out, s.in}}),
                 bias = trace.input("bias", {DType::f32, {s.out}}),
                 target = trace.input("target", {DType::f32, {s.rows, s.out}});
    loss = trace.value(mse_loss(linear(x, weight, bias), target));
    wrt = {trace.value(x), trace.value(weight), trace.value(bias)};
  }
  Differentiated d = differentiate(std::move(graph), loss, wrt);
  Trace trace(d.graph);
  for (std::size_t i = 0; i < wrt.size(); ++i)
    trace.result(fmt::format("gradient {}", i), trace.tensor(d.grads[i]));
  return build(d.graph, {.train = false, .threads = threads});
}

// Returns the seconds in compute kernels, without those that only copy inputs and results.
double layer_seconds(const Program& p, Session& session, std::int64_t batch) {
  session.run(batch, 1);
  double seconds = 0;
  for (const Span& span : session.timeline().spans) {
    const Instruction& step = p.instruction(span.instruction);
    if (p.lane(step.lane).kind == LaneKind::compute && step.op->name() != "input" &&
        step.op->name() != "result")
      seconds += span.end - span.begin;
  }
  return seconds;
}

void measure(const std::string& text, const Options& o) {
  const Size size = parse(text);
  const TeamSize team(o.threads);
  const Program p = forward_and_backward(size, o.threads);
  FunctionHost host([](const HostInput& in) { std::ranges::fill(in.as<float>(), 1e-3F); });
  Session session(p, thread_comms(p.ranks()), host, {.spans = 1000});
  session.load({});
  const Products products(size, o.threads);
  std::vector<double> layer, alone, share;
  for (int i = -2; i < o.rounds; ++i) {
    const double ours = layer_seconds(p, session, i + 2), theirs = products.seconds();
    if (i < 0) continue;  // warming up
    layer.push_back(ours), alone.push_back(theirs), share.push_back(theirs / ours);
  }
  fmt::print("{:>16} {:10.2f} {:10.2f} {:9.0f}%\n", text, 1e3 * median(layer), 1e3 * median(alone),
             100 * median(share));
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{
      "Compares a linear layer, forward and backward, with its three matrix products by oneDNN alone.",
      "bench_linear"};
  bench::Options o;
  o.threads = default_threads();
  app.option_defaults()->always_capture_default();
  app.add_option("sizes", o.sizes, "rows x inputs x outputs");
  app.add_option("--rounds", o.rounds, "number of measurements in turn; their median counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "threads of the team")->check(CLI::PositiveNumber);
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    fmt::print("{:>16} {:>10} {:>10} {:>10}\n", "size", "layer ms", "oneDNN ms", "share");
    for (const std::string& size : o.sizes) bench::measure(size, o);
  });
}
