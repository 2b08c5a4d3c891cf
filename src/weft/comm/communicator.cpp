// Communicator: checks of sizes, numbering, bookkeeping and the choice of thread, the same for every transport.
#include "weft/comm/communicator.h"

#include <exception>

#include "weft/base/timing.h"
#include "weft/comm/comm_queue.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

std::byte* bytes_of(const Tensor& t) { return t ? static_cast<std::byte*>(t.raw()) : nullptr; }

void check_reducible(CommOp op, DType dtype) {
  check(dtype != DType::u8 && dtype != DType::u16, "{} does not reduce {}; use f32, f64, bf16, f16, i32 or i64",
        name_of(op), name_of(dtype));
}

// `whole` holds `size` times `part`.
void check_parts(CommOp op, const Tensor& whole, const Tensor& part, int size) {
  check(whole.dtype() == part.dtype() && whole.numel() == part.numel() * size,
        "{} over {} ranks: {} {} does not hold {} times {} {}", name_of(op), size, name_of(whole.dtype()),
        whole.shape(), size, name_of(part.dtype()), part.shape());
}

Collective call_of(CommOp op, const Tensor& out, const Tensor& in, size_t bytes) {
  Collective call;
  call.op = op, call.dtype = in.dtype(), call.bytes = bytes;
  call.out = bytes_of(out), call.in = bytes_of(in);
  call.is_on_device = in.device() == Device::cuda;
  check((out.device() == Device::cuda) == call.is_on_device, "{} between a device and the host", name_of(op));
  return call;
}

Collective all_reduce_of(const Tensor& x, Reduction reduction) {
  check_reducible(CommOp::all_reduce, x.dtype());
  Collective call = call_of(CommOp::all_reduce, x, x, x.bytes());
  call.reduction = reduction;
  return call;
}

Collective all_gather_of(const Tensor& out, const Tensor& in, int size) {
  check_parts(CommOp::all_gather, out, in, size);
  return call_of(CommOp::all_gather, out, in, in.bytes());
}

Collective reduce_scatter_of(const Tensor& out, const Tensor& in, int size) {
  check_parts(CommOp::reduce_scatter, in, out, size), check_reducible(CommOp::reduce_scatter, in.dtype());
  return call_of(CommOp::reduce_scatter, out, in, out.bytes());
}

// Rows are those of dim 0.
size_t row_bytes_of(const Tensor& t) {
  check(t.shape().rank() >= 1, "all_to_all moves rows, a tensor without dims has none");
  size_t bytes = size_of(t.dtype());
  for (int i = 1; i < t.shape().rank(); ++i) bytes *= size_t(t.dim(i));
  return bytes;
}

void check_counts(const char* name, const Tensor& t, std::span<const int64_t> counts, int size) {
  check(int(counts.size()) == size, "all_to_all over {} ranks: {} counts of {}", size, counts.size(), name);
  int64_t rows = 0;
  for (const int64_t count : counts) {
    check(count >= 0, "all_to_all: a count of {} rows of {}", count, name);
    rows += count;
  }
  check(rows == t.dim(0), "all_to_all: the counts of {} add up to {} rows, the tensor is {}", name, rows, t.shape());
}

}  // namespace

Communicator::Communicator(std::string_view label) : label_(label) {}

Communicator::~Communicator() = default;

void Communicator::finish() noexcept {
  if (std::uncaught_exceptions() > 0) give_up();
  queue_.reset();
}

Tensor Communicator::allocate_shared(Allocator& allocator, DType dtype, Shape shape) {
  return allocator.empty(dtype, shape);
}

void Communicator::all_reduce(const Tensor& x, Reduction reduction) { collective(all_reduce_of(x, reduction)); }

void Communicator::all_gather(const Tensor& out, const Tensor& in) { collective(all_gather_of(out, in, size())); }

void Communicator::reduce_scatter(const Tensor& out, const Tensor& in) {
  collective(reduce_scatter_of(out, in, size()));
}

void Communicator::broadcast(const Tensor& x, int root) {
  check(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
  Collective call = call_of(CommOp::broadcast, x, x, x.bytes());
  call.peer = root;
  collective(call);
}

void Communicator::all_to_all(const Tensor& out, std::span<const int64_t> out_counts, const Tensor& in,
                              std::span<const int64_t> in_counts) {
  Collective call = call_of(CommOp::all_to_all, out, in, in.bytes());
  call.row_bytes = row_bytes_of(in), call.out_counts = out_counts, call.in_counts = in_counts;
  check(out.dtype() == in.dtype() && row_bytes_of(out) == call.row_bytes, "all_to_all: rows of {} {} into {} {}",
        name_of(in.dtype()), in.shape(), name_of(out.dtype()), out.shape());
  check_counts("out", out, out_counts, size());
  check_counts("in", in, in_counts, size());
  collective(call);
}

void Communicator::send(const Tensor& x, int to, int tag) {
  check(to >= 0 && to < size(), "send to rank {} of {}", to, size());
  Collective call = call_of(CommOp::send, x, x, x.bytes());
  call.peer = to, call.tag = tag;
  point_to_point(call);
}

void Communicator::recv(const Tensor& x, int from, int tag) {
  check(from >= 0 && from < size(), "recv from rank {} of {}", from, size());
  Collective call = call_of(CommOp::recv, x, x, x.bytes());
  call.peer = from, call.tag = tag;
  point_to_point(call);
}

void Communicator::barrier() { collective(Collective{}); }

Pending Communicator::start_all_reduce(Tensor x, Reduction reduction) {
  return start(all_reduce_of(x, reduction), x, {});
}

Pending Communicator::start_all_gather(Tensor out, Tensor in) {
  const Collective call = all_gather_of(out, in, size());
  return start(call, std::move(out), std::move(in));
}

Pending Communicator::start_reduce_scatter(Tensor out, Tensor in) {
  const Collective call = reduce_scatter_of(out, in, size());
  return start(call, std::move(out), std::move(in));
}

void Communicator::use_stream(Stream& stream) {
  if (stream.allocator().device() != Device::cuda) return;
  device_ = make_device_transport(*this, stream);
  device_->set_timer(timer_);
}

void Communicator::set_observer(CommObserver observer, DeviceTimer* timer) {
  observer_ = std::move(observer), timer_ = timer;
  if (device_) device_->set_timer(timer);
}

void Communicator::pass_on_to(Communicator& group) const {
  if (device_) group.device_ = device_->for_group(group);
  group.set_observer(observer_, timer_);
}

void Communicator::check_reach(const Collective& call) const {
  check(!call.is_on_device || device_, "{} (group {}): the tensor is on a device, and the group knows of none",
        name_of(call.op), label_);
}

void Communicator::collective(Collective call) {
  check_reach(call);
  if (call.is_on_device) device_->prepare(call);
  call.sequence = ++sequence_;
  if (queue_ && !queue_->is_idle() && !is_queued_by_device(call)) return wait_for(queue_->push(call), false);
  const auto begin = Clock::now();
  execute(call, false);
  exposed_seconds_.fetch_add(seconds_since(begin), std::memory_order_relaxed);
}

void Communicator::point_to_point(Collective call) {
  check_reach(call);
  if (call.is_on_device) device_->prepare(call);
  call.sequence = ++messages_;
  const auto begin = Clock::now();
  execute(call, false);
  exposed_seconds_.fetch_add(seconds_since(begin), std::memory_order_relaxed);
}

Pending Communicator::start(Collective call, Tensor out, Tensor in) {
  check_reach(call);
  if (call.is_on_device) device_->prepare(call);
  call.sequence = ++sequence_;
  if (!has_thread()) {
    execute(call, true);
    return Pending(*this, uint32_t(call.sequence), std::move(out), std::move(in));
  }
  if (is_queued_by_device(call)) {
    uint32_t ticket = 0;
    note(call, true, [&] { ticket = device_->start(call); });
    return Pending(*this, ticket, std::move(out), std::move(in));
  }
  if (!queue_)
    queue_ = std::make_unique<CommQueue>([this](const Collective& c) { execute(c, true); }, has_core_for_each());
  return Pending(*this, queue_->push(call), std::move(out), std::move(in));
}

void Communicator::wait_for(uint32_t ticket, bool is_on_device) {
  const auto begin = Clock::now();
  DeviceMarks marks;
  if (is_on_device && device_->queues_calls())
    device_->wait(ticket), marks = device_->take_marks();
  else if (queue_)
    queue_->wait(ticket);
  exposed_seconds_.fetch_add(seconds_since(begin), std::memory_order_relaxed);
  if (observer_)
    observer_({CommOp::barrier, DType::u8, label_, queue_ ? 0 : int64_t(ticket), 0, true, begin, Clock::now(), true,
               0, 0, marks});
}

void Communicator::execute(const Collective& call, bool is_started) {
  note(call, is_started, [&] {
    if (!call.is_on_device) return run(call);
    device_->run(call, is_started, [this](const Collective& staged) { run(staged); });
  });
}

// The rank's progress, its statistics and the observer learn of a call.
template <class Run>
void Communicator::note(const Collective& call, bool is_started, Run&& run_call) {
  const auto begin = Clock::now();
  if (own_progress_) own_progress_->enter(call, label_, is_started);
  run_call();
  if (own_progress_) own_progress_->leave(is_started);
  const auto end = Clock::now();
  seconds_.fetch_add(std::chrono::duration<double>(end - begin).count(), std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_relaxed);
  bytes_sent_.fetch_add(weft::bytes_sent(call, rank(), size()), std::memory_order_relaxed);
  if (observer_)
    observer_({call.op, call.dtype, label_, call.sequence, int64_t(call.bytes), is_started, begin, end, false,
               call.peer, call.tag, is_queued_by_device(call) ? device_->take_marks() : DeviceMarks()});
}

std::string Communicator::whereabouts(const Collective& call) const {
  std::string text;
  for (int r = 0; r < size(); ++r) {
    const RankProgress* const progress = progress_of(r);
    if (!progress) continue;
    if (call.op == CommOp::recv ? r != call.peer : r == rank() || progress->is_inside(call, label_)) continue;
    const std::string place = progress->has_left() ? "has left" : progress->describe();
    if (!place.empty()) text += fmt::format("; {} {}", describe_rank(r, progress), place);
  }
  return text;
}

Communicator::Stats Communicator::stats() const { return {calls_, bytes_sent_, seconds_, exposed_seconds_}; }

// ---- Pending ----

Pending::Pending(Communicator& communicator, uint32_t ticket, Tensor out, Tensor in)
    : communicator_(&communicator),
      ticket_(ticket),
      exceptions_(std::uncaught_exceptions()),
      out_(std::move(out)),
      in_(std::move(in)) {}

Pending::Pending(Pending&& other) noexcept
    : communicator_(std::exchange(other.communicator_, nullptr)),
      ticket_(other.ticket_),
      exceptions_(other.exceptions_),
      out_(std::move(other.out_)),
      in_(std::move(other.in_)) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  finish();
  communicator_ = std::exchange(other.communicator_, nullptr);
  ticket_ = other.ticket_, exceptions_ = other.exceptions_;
  out_ = std::move(other.out_), in_ = std::move(other.in_);
  return *this;
}

Pending::~Pending() {
  if (communicator_ && std::uncaught_exceptions() > exceptions_) communicator_->give_up();
  finish();
}

void Pending::wait() {
  if (!communicator_) return;
  Communicator& communicator = *std::exchange(communicator_, nullptr);
  const Tensor out = std::move(out_), in = std::move(in_);
  communicator.wait_for(ticket_, out && out.device() == Device::cuda);
}

void Pending::finish() noexcept {
  try {
    wait();
  } catch (...) {  // the group is broken: its next call says why
  }
}

}  // namespace weft
