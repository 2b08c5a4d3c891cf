// RankProgress: fixed-size notes and the words for them.
#include "weft/comm/rank_progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  from = from.substr(0, N - 1);
  std::ranges::copy(from, to);
  to[from.size()] = 0;
}

}  // namespace

void RankProgress::set_place(std::string_view what, int64_t step) noexcept {
  Place place{};
  place.step_plus_one = step + 1;
  copy_text(place.text, what);
  place_.write(place);
  pulse_.fetch_add(1, std::memory_order_relaxed);
}

void RankProgress::enter(const Collective& call, std::string_view label, bool is_started) noexcept {
  Call note{};
  note.sequence = call.sequence, note.bytes = call.bytes, note.row_bytes = call.row_bytes;
  note.peer = call.peer, note.tag = call.tag;
  note.op = call.op, note.dtype = call.dtype, note.reduction = call.reduction;
  copy_text(note.label, label);
  Calls& calls = is_started ? started_ : own_;
  calls.is_done.store(false, std::memory_order_relaxed);
  calls.last.write(note);
  pulse_.fetch_add(1, std::memory_order_relaxed);
}

bool RankProgress::is_inside(const Collective& call, std::string_view label) const {
  for (const Calls* calls : {&own_, &started_}) {
    const Call now = calls->last.read();
    const bool is_same_group = now.label == label.substr(0, sizeof now.label - 1);
    if (!calls->is_done.load() && now.op == call.op && now.sequence == call.sequence && is_same_group) return true;
  }
  return false;
}

std::string RankProgress::describe(const Call& note) {
  Collective call;
  call.op = note.op, call.dtype = note.dtype, call.reduction = note.reduction;
  call.peer = note.peer, call.tag = note.tag, call.bytes = note.bytes, call.row_bytes = note.row_bytes;
  return fmt::format("{} (group {}, call {})", weft::describe(call), note.label, note.sequence);
}

std::string RankProgress::describe() const {
  const Place place = place_.read();
  const Call own = own_.last.read(), started = started_.last.read();
  std::string text;
  const auto add = [&](std::string_view separator, const std::string& words) {
    text += text.empty() ? "was last seen " : separator;
    text += words;
  };
  if (place.text[0]) add("", fmt::format("in \"{}\"", place.text));
  if (place.text[0] && place.step_plus_one > 0) text += fmt::format(" of step {}", place.step_plus_one - 1);
  if (own.sequence) add(", ", fmt::format("{} {}", own_.is_done.load() ? "after" : "inside", describe(own)));
  if (started.sequence && !started_.is_done.load()) add(", ", "with a started " + describe(started) + " under way");
  return text;
}

std::string describe(const Collective& call, std::string_view label, const RankProgress* own) {
  const int64_t step = own ? own->step() : -1;
  return fmt::format("{} (group {}, call {}{})", describe(call), label, call.sequence,
                     step >= 0 ? fmt::format(", step {}", step) : "");
}

std::string describe_rank(int rank, const RankProgress* progress) {
  const int world_rank = progress ? progress->world_rank() : rank;
  return world_rank == rank || world_rank < 0 ? fmt::format("rank {}", rank)
                                              : fmt::format("rank {} (rank {} of world)", rank, world_rank);
}

}  // namespace weft
