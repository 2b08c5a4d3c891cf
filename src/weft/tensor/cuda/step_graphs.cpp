// StepGraphs: records of steps, and graphs of their segments.
#include "weft/tensor/cuda/step_graphs.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "weft/base/ceil_div.h"
#include "weft/tensor/cuda/check_cuda.h"

namespace weft {
namespace {

// No kernel has these addresses; CudaQueue has others.
constexpr uint64_t kUploadTag = 1, kSameUploadTag = 5;

// What an op is, whatever it is given: the first word of its bytes.
bool are_alike(const std::string& a, const std::string& b) {
  return a.size() >= sizeof(uint64_t) && b.size() >= sizeof(uint64_t) &&
         std::memcmp(a.data(), b.data(), sizeof(uint64_t)) == 0;
}

// Of a graph, which needs it no more.
void destroy(cudaGraphExec_t& graph) {
  if (graph) cudaGraphExecDestroy(graph);
  graph = nullptr;
}

}  // namespace

// The record of a key's steps.
struct StepGraphs::Plan {
  explicit Plan(uint64_t key_) : key(key_) {
    void *on_host = nullptr, *on_device = nullptr;
    check_cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "make an event");
    check_cuda(cudaMallocHost(&on_host, kUploadBytes), "pin memory of the host");
    pinned = static_cast<std::byte*>(on_host);
    check_cuda(cudaMalloc(&on_device, kUploadBytes), "allocate memory for uploads");
    device = static_cast<std::byte*>(on_device);
  }
  ~Plan() {
    if (was_run) cudaEventSynchronize(done);
    forget();
    cudaFree(device);
    cudaFreeHost(pinned);
    if (done) cudaEventDestroy(done);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void forget() {
    for (Segment& s : segments) destroy(s.graph);
    segments.clear(), ops.clear(), before.clear();
    has_failed = false;
  }

  uint64_t key;
  int64_t num_steps = 0;
  std::vector<Op> ops, before;  // before: those that a new record replaces
  size_t before_at = 0;         // index of the first of these
  std::vector<Segment> segments;
  std::byte *pinned = nullptr, *device = nullptr;
  cudaEvent_t done = nullptr;  // the last step of this key
  bool was_run = false;
  bool has_failed = false;  // in its last step, of which the record is worth nothing
};

namespace {
thread_local StepGraphs* of_this_thread = nullptr;
}  // namespace

StepGraphs::StepGraphs(cudaStream_t stream, std::function<void(cudaEvent_t)> wait)
    : stream_(stream), wait_(std::move(wait)) {}

StepGraphs::~StepGraphs() {
  plans_.clear();
  if (capturing_) cudaStreamDestroy(capturing_);
}

void StepGraphs::flush_this_thread() noexcept {
  if (!of_this_thread) return;
  try {
    of_this_thread->flush();
  } catch (const Error&) {  // the device has failed, and says so again
  }
}

// That of the key; else a new one, or the one that was not used for longest, whose memory serves on: to free and to
// pin some would stop the device.
StepGraphs::Plan* StepGraphs::plan_of(uint64_t key) {
  const auto found = std::ranges::find(plans_, key, [](const auto& plan) { return plan->key; });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
  } else if (plans_.size() < kMostPlans) {
    plans_.push_front(std::make_unique<Plan>(key));
  } else {
    plans_.splice(plans_.begin(), plans_, std::prev(plans_.end()));
  }
  return plans_.front().get();
}

void StepGraphs::begin(uint64_t key) {
  check(!plan_, "a step began within another");
  if (has_given_up_) return;
  Plan* const plan = plan_of(key);
  // What graphs and uploads read may change when they have read it.
  if (plan->was_run) wait_(plan->done);
  if (plan->has_failed || plan->key != key) plan->forget();
  plan->key = key;
  plan_ = plan, at_ = 0, segment_ = 0;
  ++plan->num_steps;
  is_recording_ = plan->ops.empty();
  uploads_.clear();
  of_this_thread = this;
}

void StepGraphs::end() {
  if (!plan_) return;
  try {
    flush();
  } catch (...) {
    drop();
    throw;
  }
  Plan& plan = *std::exchange(plan_, nullptr);
  of_this_thread = nullptr;
  plan.before.clear();
  plan.was_run = true;
  check_cuda(cudaEventRecord(plan.done, stream_), "record an event");
  if (has_given_up_) plans_.clear();
}

// Waits for nothing: what was queued may itself wait for ranks that are told of the failure after this.
void StepGraphs::drop() noexcept {
  if (!plan_) return;
  Plan& plan = *std::exchange(plan_, nullptr);
  of_this_thread = nullptr;
  plan.has_failed = plan.was_run = true;
  cudaEventRecord(plan.done, stream_);
}

bool StepGraphs::is_beyond() const { return at_ == kMostOpsOfStep; }

bool StepGraphs::is_apart() const {
  return !is_recording_ && at_ < plan_->ops.size() && plan_->ops[at_].is_apart() &&
         are_alike(plan_->ops[at_].bytes, description_.bytes());
}

// An op that changes from step to step has a segment of its own, so that nothing is held back before it.
void StepGraphs::pass_apart() { ++at_, ++segment_, ++stats_.issued; }

bool StepGraphs::is_as_recorded() {
  if (is_recording_) return false;
  if (at_ == plan_->ops.size() || plan_->ops[at_].bytes != description_.bytes()) return cut(true), false;
  if (++at_ == plan_->segments[segment_].end) finish_segment();
  return true;
}

// The record ends where the next op would be, what was held back is queued, and the step goes on as a new record.
void StepGraphs::cut(bool has_changed) {
  Plan& plan = *plan_;
  is_recording_ = true;
  if (segment_ < plan.segments.size()) {
    Segment& s = plan.segments[segment_];
    for (size_t i = segment_; i < plan.segments.size(); ++i) destroy(plan.segments[i].graph);
    plan.segments.resize(segment_ + (s.begin < at_ ? 1 : 0));
    if (s.begin < at_) {
      Segment& rest = plan.segments.back();
      rest.end = at_, rest.is_closed = true;
      issue(rest);
    }
  }
  plan.before.assign(std::make_move_iterator(plan.ops.begin() + int64_t(at_)),
                     std::make_move_iterator(plan.ops.end()));
  plan.before_at = at_;
  plan.ops.resize(at_);
  was_same_ = may_count_ = has_changed;
}

// An op that differs where the one before it did not changes by itself, with others of its kind behind it: where an
// address differs, all that follow do. One that changes seldom, as attention's shape every hundred tokens, stays.
StepGraphs::Op& StepGraphs::new_op(bool has_room) {
  Plan& plan = *plan_;
  Op op{.bytes = description_.bytes(), .issue = {}, .slot = 0, .changes = 0};
  const size_t i = at_ - plan.before_at;
  const Op* const before = at_ >= plan.before_at && i < plan.before.size() ? &plan.before[i] : nullptr;
  const bool is_same = before && before->bytes == op.bytes, is_known = before && are_alike(before->bytes, op.bytes);
  const bool counts = !is_same && is_known && may_count_ && (was_same_ || are_alike(plan.ops.back().bytes, op.bytes));
  if (is_known) op.changes = before->changes, op.last_change = before->last_change;
  if (counts) {
    const bool is_soon = op.last_change > 0 && plan.num_steps - op.last_change <= kSoon;
    if (!op.is_apart()) op.changes = is_soon ? op.changes + 1 : 1;
    op.last_change = plan.num_steps;
  }
  was_same_ = is_same, may_count_ = is_same || counts;
  if (!has_room) op.changes = kMostChanges;
  const auto is_full = [&](const Segment& s) {
    const size_t doublings = std::min<size_t>(plan.segments.size() - 1, 8);
    return s.end - s.begin >= std::min(kFirstOps << doublings, kMostOps);
  };
  const bool is_new_segment =
      plan.segments.empty() || plan.segments.back().is_closed || op.is_apart() || is_full(plan.segments.back());
  if (is_new_segment) plan.segments.push_back({at_, at_, false, nullptr});
  plan.segments.back().is_closed = op.is_apart();
  plan.segments.back().end = ++at_;
  ++stats_.issued;
  return plan.ops.emplace_back(std::move(op));
}

void StepGraphs::record(Issue issue) {
  Op& op = new_op();
  op.issue = std::move(issue);
  op.issue(stream_);
}

// What was uploaded in this step already, as positions and block tables are layer after layer; null: nothing is the
// same, or it was not when the record was made.
const std::byte* StepGraphs::same_upload(const void* from, size_t bytes) {
  for (auto known = uploads_.rbegin(); known != uploads_.rend(); ++known) {
    const auto [slot, size] = *known;
    if (size != bytes || (bytes && std::memcmp(plan_->pinned + slot, from, bytes) != 0)) continue;
    description().add(kSameUploadTag).add(slot).add(bytes);
    if (!is_recording_ && (at_ == plan_->ops.size() || plan_->ops[at_].bytes != description_.bytes())) continue;
    add([](cudaStream_t) {});
    return plan_->device + slot;
  }
  return nullptr;
}

const void* StepGraphs::upload(const void* from, size_t bytes) {
  if (is_beyond()) return nullptr;
  if (const std::byte* const same = same_upload(from, bytes)) return same;
  description().add(kUploadTag).add(bytes);
  if (is_apart()) return pass_apart(), nullptr;
  Plan& plan = *plan_;
  const bool is_recorded = !is_recording_ && at_ < plan.ops.size() && plan.ops[at_].bytes == description_.bytes();
  if (is_recorded) {
    const size_t slot = plan.ops[at_].slot;
    if (bytes) std::memcpy(plan.pinned + slot, from, bytes);
    uploads_.emplace_back(slot, bytes);
    is_as_recorded();
    return plan.device + slot;
  }
  if (!is_recording_) cut(true);
  size_t slot = 0;
  for (const Op& op : plan.ops) slot = std::max(slot, op.slot_end);
  const size_t end = slot + size_t(round_up(int64_t(bytes), 256));
  Op& op = new_op(end <= kUploadBytes);
  if (op.is_apart()) return nullptr;  // what is told its address will not be the same either
  op.slot = slot, op.slot_end = end;
  op.issue = [to = plan.device + slot, pinned = plan.pinned + slot, bytes](cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, stream), "upload");
  };
  if (bytes) std::memcpy(plan.pinned + slot, from, bytes);
  uploads_.emplace_back(slot, bytes);
  op.issue(stream_);
  return plan.device + slot;
}

void StepGraphs::flush() {
  if (!plan_) return;
  if (is_recording_) {
    if (!plan_->segments.empty()) plan_->segments.back().is_closed = true;
  } else if (segment_ < plan_->segments.size() && plan_->segments[segment_].begin < at_) {
    cut(false);
  }
}

void StepGraphs::issue(const Segment& s) {
  for (size_t i = s.begin; i < s.end; ++i) plan_->ops[i].issue(stream_);
  stats_.issued += int64_t(s.end - s.begin);
}

// All of the segment is as recorded.
void StepGraphs::finish_segment() {
  Segment& s = plan_->segments[segment_++];
  if (!s.graph && s.end - s.begin >= kFewestOps && !has_given_up_) s.graph = capture(s);
  if (!s.graph) return issue(s);
  if (const cudaError_t status = cudaGraphLaunch(s.graph, stream_); status != cudaSuccess) {
    give_up("launch a graph", status);
    return issue(s);
  }
  ++stats_.launched;
}

// One copy brings all that the segment uploads, which is known by the time that its graph is launched and lies side
// by side; a copy between two kernels keeps the second one waiting.
void StepGraphs::issue_to_capture(const Segment& s) {
  size_t begin = kUploadBytes, end = 0;
  for (size_t i = s.begin; i < s.end; ++i) {
    const Op& op = plan_->ops[i];
    if (op.is_upload()) begin = std::min(begin, op.slot), end = std::max(end, op.slot_end);
  }
  if (begin < end)
    check_cuda(cudaMemcpyAsync(plan_->device + begin, plan_->pinned + begin, end - begin, cudaMemcpyHostToDevice,
                               capturing_),
               "upload");
  for (size_t i = s.begin; i < s.end; ++i)
    if (!plan_->ops[i].is_upload()) plan_->ops[i].issue(capturing_);
}

// Null when it cannot be had.
cudaGraphExec_t StepGraphs::capture(const Segment& s) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  // Other work of the device is ordered with streams as they are made by default, which a capture forbids.
  cudaError_t status = capturing_ ? cudaSuccess : cudaStreamCreateWithFlags(&capturing_, cudaStreamNonBlocking);
  if (status == cudaSuccess) status = cudaStreamBeginCapture(capturing_, cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) return give_up("begin a graph", status), nullptr;
  bool is_complete = true;
  try {
    issue_to_capture(s);
  } catch (const Error&) {
    is_complete = false;
  }
  status = cudaStreamEndCapture(capturing_, &graph);
  if (status == cudaSuccess && is_complete) status = cudaGraphInstantiate(&ready, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  if (status != cudaSuccess || !is_complete) return destroy(ready), give_up("make a graph", status), nullptr;
  ++stats_.captured;
  return ready;
}

void StepGraphs::give_up(const char* what, cudaError_t status) {
  cudaGetLastError();  // else the next call would report it
  if (std::exchange(has_given_up_, true)) return;
  fmt::print(stderr, "weft: CUDA could not {} ({}): steps are queued without graphs from now on\n", what,
             cudaGetErrorString(status));
}

StepGraphs::Stats StepGraphs::stats() const {
  Stats s = stats_;
  s.plans = int64_t(plans_.size());
  return s;
}

}  // namespace weft
