// Timeline: what ranks did when, planned or measured, as spans of a few kinds.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/autograd/context.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/train/trace.h"

namespace weft::plan {

// What a span of time went to.
enum class SpanKind : uint8_t {
  forward,
  backward,         // gradients of inputs; of an action: both halves
  weight_gradient,  // gradients of weights
  recompute,        // a forward pass inside a backward one
  optimizer,
  wait,  // for a collective
  collective,
  message,  // from rank to rank
  other,
};
inline constexpr int kNumSpanKinds = 9;
std::string_view name_of(SpanKind kind);  // "weight gradient"

SpanKind kind_of(ActionKind action);
SpanKind kind_of(OpObserver::Phase phase, ActionKind inside);

// Texts live as long as the timeline, or the program.
struct Span {
  int rank = 0;  // an index of Timeline::ranks
  TraceTrack track = TraceTrack::compute;
  SpanKind kind = SpanKind::other;
  std::string_view name, group;  // the group of a collective
  double begin_s = 0, end_s = 0;
  int stage = -1, micro_batch = -1;  // of actions, and of kernels inside one
  double bytes = 0;                  // of collectives
};

struct Timeline {
  std::string name;                // "plan", or the file
  std::vector<std::string> ranks;  // what each is called
  std::vector<Span> spans;
  double seconds = 0;  // from 0 to the end
  std::string note;    // what is left out; may be empty
  std::shared_ptr<std::set<std::string, std::less<>>> texts = std::make_shared<std::set<std::string, std::less<>>>();

  std::string_view intern(std::string_view text);
};

// Sorted, and without overlap: what begins later covers what it lies in, as a child its parent. All of one rank and
// track.
std::vector<Span> flattened(std::vector<Span> spans);

// What begins at the last forward pass of the first micro-batch, as a timeline of its own; all, where there is none.
Timeline last_step_of(const Timeline& timeline);

// Seconds of each kind on the compute track, one line a rank: where time goes.
std::vector<std::vector<double>> seconds_by_kind(const Timeline& timeline);

}  // namespace weft::plan
