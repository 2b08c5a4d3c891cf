// TraceOps: from ops and collectives to spans.
#include "weft/train/trace_ops.h"

#include "weft/train/op_profile.h"

namespace weft {

TraceOps::TraceOps(Communicator& world, Context& context)
    : world_(world), context_(context), tracer_(world.rank()), timer_(make_timer(context.stream)) {
  begun_.reserve(16);
  world.set_observer([this](const CommEvent& event) { record(event); }, timer_.get());
}

void TraceOps::start() {
  tracer_.start();
  if (timer_) on_device_.clear(), timer_->start();
  context_.observer = this;
}

void TraceOps::stop() {
  context_.observer = nullptr;
  if (timer_) {
    const std::vector<int64_t> times = timer_->stop();
    for (DeviceSpan& span : on_device_) {
      span.event.begin_ns = times[size_t(span.marks.begin)], span.event.end_ns = times[size_t(span.marks.end)];
      tracer_.record(span.event);
    }
  }
  tracer_.stop();
}

void TraceOps::record(TraceEvent event, const Moment& begin) {
  const Moment end = now();
  if (timer_) {
    on_device_.push_back({event, {begin.mark, end.mark}});
    event.track = TraceTrack::host;
  }
  event.begin_ns = begin.ns, event.end_ns = end.ns;
  tracer_.record(event);
}

void TraceOps::begin(std::string_view, Phase) { begun_.push_back(now()); }

void TraceOps::end(std::string_view op, Phase phase) {
  TraceEvent event{.name = op};
  event.add({.key = "phase", .text = name_of(phase)});
  record(event, begun_.back());
  begun_.pop_back();
}

void TraceOps::record(const CommEvent& e) {
  if (!tracer_.is_recording()) return;
  const auto ns = [](std::chrono::steady_clock::time_point t) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
  };
  const bool is_of_host = timer_ && !e.marks.are_set();
  TraceEvent event{.name = e.is_wait ? kWaitName : name_of(e.op),
                   .track = !e.is_wait   ? TraceTrack::communication
                            : is_of_host ? TraceTrack::host
                                         : TraceTrack::compute,
                   .begin_ns = ns(e.begin),
                   .end_ns = ns(e.end)};
  event.add({.key = "group", .text = tracer_.intern(std::string(e.group))});
  if (!e.is_wait) {
    event.add({.key = "bytes", .number = double(e.bytes)});
    event.add({.key = "sequence", .number = double(e.sequence)});
    event.add({.key = "started", .number = double(e.is_started)});
  }
  if (e.marks.are_set())
    on_device_.push_back({event, e.marks});
  else
    tracer_.record(event);
}

void TraceOps::record(const Action& action, bool is_begin) {
  if (!tracer_.is_recording()) return;
  if (is_begin) {
    action_begun_ = now();
    return;
  }
  TraceEvent event{.name = name_of(action.kind), .track = TraceTrack::pipeline};
  event.add({.key = "stage", .number = double(action.stage)});
  event.add({.key = "micro_batch", .number = double(action.micro_batch)});
  record(event, action_begun_);
}

void TraceOps::write(const std::string& path) {
  constexpr int kTag = 7001;
  const auto exchange = [&](const Tensor& t, int from) {
    if (world_.rank() == from)
      world_.send(t, 0, kTag);
    else
      world_.recv(t, from, kTag);
  };
  Allocator& memory = context_.stream.host_memory();
  const Tensor origin = memory.empty(DType::i64, {1});
  *origin.data<int64_t>() = tracer_.first_ns();
  world_.all_reduce(origin, Reduction::min);
  const std::string mine = tracer_.to_json(*origin.data<int64_t>());
  std::vector<std::string> all(size_t(world_.size()));
  all[size_t(world_.rank())] = mine;
  for (int rank = 1; rank < world_.size(); ++rank) {
    if (world_.rank() != 0 && world_.rank() != rank) continue;
    const Tensor size = memory.empty(DType::i64, {1});
    *size.data<int64_t>() = int64_t(mine.size());
    exchange(size, rank);
    const Tensor text = memory.empty(DType::u8, {*size.data<int64_t>()});
    if (world_.rank() == rank) std::memcpy(text.raw(), mine.data(), mine.size());
    exchange(text, rank);
    if (world_.rank() == 0) all[size_t(rank)].assign(reinterpret_cast<const char*>(text.raw()), text.bytes());
  }
  if (world_.rank() == 0) write_trace(FileSystem::real(), path, all);
}

}  // namespace weft
