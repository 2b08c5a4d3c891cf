// A measured trace.json from outside, opened and drawn.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/plan/read_trace.h"
#include "weft/plan/report/timeline_picture.h"

namespace weft {
namespace {

void expect_plausible(const plan::Timeline& t) {
  for (const plan::Span& s : t.spans)
    if (!(s.begin_s >= 0 && s.begin_s <= s.end_s && s.end_s <= t.seconds) || size_t(s.rank) >= t.ranks.size())
      std::abort();
  if (seconds_by_kind(t).size() != t.ranks.size()) std::abort();
}

}  // namespace

void fuzz_trace(Bytes input) {
  expect_errors_only([&] {
    const plan::Timeline whole =
        plan::read_trace(text_of(input), "trace.json", {.max_bytes = 1 << 20, .max_events = 4096, .max_ranks = 64});
    const plan::Timeline drawn[] = {whole, last_step_of(whole)};
    for (const plan::Timeline& t : drawn) expect_plausible(t);
    if (draw_timelines(drawn, {.is_document = true}).empty()) std::abort();
  });
}

}  // namespace weft
