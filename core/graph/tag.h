#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::engine {

enum class Phase : std::uint8_t { forward, backward, update, barrier };
std::string_view name_of(Phase phase);

/// The node of the same task at or next to which a node is listed (plan/list_order.h).
enum class Anchor : std::uint8_t {
  of_lane,       ///< as is usual on its lane: `itself` on the compute lane
  itself,        ///< at its place in the graph
  last_input,    ///< after the last node of the task that it waits for
  first_reader,  ///< before the first node of the task that reads its value
};
/// Where a pass lists a node. Without an anchor in the task it is listed at its place in the graph.
struct Position {
  Anchor anchor = Anchor::of_lane;
  int ahead =
      0;  ///< `first_reader`: after the node whose id is smaller by `ahead`; 0: just before the reader
  bool operator==(const Position&) const = default;
};

/// Where a node comes from and where it runs. A pass that adds nodes takes the tag of a node nearby, and
/// changes by name what is different; or it makes a new one with `tag_of`. A position belongs to one node, so
/// the tags of others, made with `in_phase`, `named`, `on_channel` or `without_rng`, have none: set it last.
struct Tag {
  Phase phase = Phase::forward;
  std::string path{};  ///< module path: "layer1.0.conv2"
  int stage = 0;       ///< of a pipeline
  int device = 0;      ///< on which the stage lies
  int microbatch = 0;
  int array = 0;              ///< of models, if a Program trains several arrays
  int lane = 0;               ///< compute lane of the stage
  int lag = 0;                ///< in unit u the node works on batch u − lag
  std::uint64_t rng_id = 0;   ///< of an op that draws (`rng_id`)
  std::int64_t channel = -1;  ///< of a transfer or collective: unique, and equal at all its ends
  int threads = 1;            ///< r: worker threads of a collective, the lane's own among them
  Position position{};

  // This tag with something changed.
  Tag in_phase(Phase other) const;
  Tag named(std::string other) const;
  Tag on_stage(int other, int its_device) const;
  Tag of_microbatch(int other) const;
  Tag of_array(int other) const;
  /// For a transfer or collective, by one thread.
  Tag on_channel(std::int64_t other) const;
  /// For what is neither: without a channel, which belongs to one transfer or collective.
  Tag without_channel() const { return on_channel(-1); }
  /// For a collective.
  Tag by_threads(int other) const;
  Tag at(Position other) const;
  /// For an op that draws nothing.
  Tag without_rng() const;
  Tag timed(int other_lag, int other_lane) const;
  Tag timed_like(const Tag& other) const { return timed(other.lag, other.lane); }
};

/// The tag of a new node.
Tag tag_of(Phase phase, std::string path, int stage = 0, int device = 0);

/// What the `call`-th op that draws in module `path` (0, 1, …) draws from, in addition to the seed, the batch
/// and the micro-batch: a hash of both. Planned and eager runs number the calls alike.
std::uint64_t rng_id(std::string_view path, int call);

/// Returns whether `path` names the module or a module inside it: "layer1.0.conv2" is in "layer1.0", but not
/// in "layer1.1".
bool in_module(std::string_view path, std::string_view module);

/// Returns whether nodes with these tags run on the same lane of the same stage, in the same phase, for the
/// same array, batch and micro-batch, with the same channel and position. Such nodes may become one.
bool same_place(const Tag& a, const Tag& b);

}  // namespace tandem::engine
