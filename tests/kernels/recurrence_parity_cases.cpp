// Recurrences: runs that begin with a state, with zeros, and with what lies where they leave theirs.
#include "kernels/recurrence_parity_cases.h"

#include <array>

namespace weft {
namespace {

// Runs of many tokens, of fewer than a convolution is wide, of one and of none.
constexpr std::array kRuns = {TokenRun{0, 5, 3, 3}, TokenRun{5, 6, 1, 0}, TokenRun{6, 6, -1, 2},
                              TokenRun{6, 23, -1, -1}, TokenRun{23, 25, 4, 4}};
constexpr int64_t kStates = 5, kTokens = 25;
// Longer than a block of states that a backward pass keeps.
constexpr std::array kWholeRuns = {TokenRun{0, 35}, TokenRun{35, 35}, TokenRun{35, 36}, TokenRun{36, 43}};
constexpr int64_t kWholeTokens = 43;

// One token to each run, as sequences that are decoded together have it.
constexpr std::array kSteps = {TokenRun{0, 1, 2, 2}, TokenRun{1, 2, 0, 1}, TokenRun{2, 3, -1, 3}};

// Of two sequences, with states left on the way: the first begins where it ends, and has fewer tokens in its last run
// than a convolution is wide; the second begins with zeros.
constexpr std::array kParts = {TokenRun{0, 3, 3, 1}, TokenRun{3, 5, 1, 0}, TokenRun{5, 6, 0, 3},
                               TokenRun{6, 8, -1, 2}, TokenRun{8, 20, 2, 4}};

TokenRuns runs_of(std::span<const TokenRun> runs) { return {runs.data(), int(runs.size())}; }

void add_conv_cases(std::vector<ParityCase>& cases) {
  for (const int64_t width : {1, 2, 4, 8}) {
    cases.push_back(
        {fmt::format("causal_conv_{}", width), [width](const Kernels& k, Stream& stream, Operands& o) {
           for (const int64_t channels : {1, 37, 300})
             for (const std::span<const TokenRun> runs : {std::span<const TokenRun>(kRuns), {kSteps}, {kParts}}) {
               const Shape rows{runs.back().end, channels};
               const std::string name = fmt::format(" of {}, {} tokens", channels, runs.back().end);
               const CausalConvArgs args{.y = o.out("y" + name, rows),
                                         .x = o.x("x" + name, rows),
                                         .weight = o.x("weight", {channels, width}),
                                         .bias = channels > 1 ? o.x("bias", {channels}) : Tensor(),
                                         .states = o.inout("states" + name, {kStates, width - 1, channels}),
                                         .runs = runs_of(runs)};
               const CausalConvArgs other{.y = o.out("other", {kWholeTokens, 3}),
                                          .x = o.x("other x", {kWholeTokens, 3}),
                                          .weight = o.x("other weight", {3, width}),
                                          .states = {},
                                          .runs = runs_of(kWholeRuns),
                                          .f = Activation::identity};
               k.causal_conv(stream, std::array{args, other});
             }
         }});
    cases.push_back(
        {fmt::format("causal_conv_backward_{}", width), [width](const Kernels& k, Stream& stream, Operands& o) {
           for (const int64_t channels : {1, 37, 300})
             for (const bool accumulate : {false, true}) {
               const Shape rows{kWholeTokens, channels}, taps{channels, width};
               k.causal_conv_backward(
                   stream, {.dx = o.out("dx", rows),
                            .dweight = accumulate ? o.inout_f32("dweight", taps) : o.out_f32("dweight", taps),
                            .dbias = accumulate ? o.inout_f32("dbias", {channels}) : o.out_f32("dbias", {channels}),
                            .accumulate = accumulate,
                            .dy = o.x("dy", rows),
                            .x = o.x("x", rows),
                            .weight = o.x("weight", taps),
                            .bias = o.x("bias", {channels}),
                            .runs = runs_of(kWholeRuns),
                            .f = accumulate ? Activation::identity : Activation::silu});
             }
         }});
  }
}

struct StateSize {
  int64_t keys, heads, dk, dv;
};
constexpr StateSize kStateSizes[] = {{1, 1, 1, 1},   {2, 4, 8, 5},   {1, 3, 33, 40},
                                     {1, 1, 9, 130}, {1, 1, 256, 7}, {1, 2, 16, 128}};

// by_row: each row of a state forgets at a rate of its own.
void add_state_cases(std::vector<ParityCase>& cases, const std::string& rule_name, StateRule rule, bool by_row) {
  const bool is_delta = rule == StateRule::delta;
  for (const StateSize s : kStateSizes) {
    const std::string size = fmt::format("_{}x{}x{}x{}", s.keys, s.heads, s.dk, s.dv);
    const int64_t rates = s.heads * (by_row ? s.dk : 1);
    cases.push_back(
        {rule_name + size, [s, rule, is_delta, rates](const Kernels& k, Stream& stream, Operands& o) {
           for (const std::span<const TokenRun> runs : {std::span<const TokenRun>(kRuns), {kSteps}, {kParts}}) {
             const int64_t tokens = runs.back().end;
             const std::string name = fmt::format(" of {} tokens", tokens);
             k.recurrence(stream, {.rule = rule,
                                   .y = o.out("y" + name, {tokens, s.heads, s.dv}),
                                   .q = o.x("q", {tokens, s.keys, s.dk}),
                                   .k = o.x("k", {tokens, s.keys, s.dk}),
                                   .v = o.x("v", {tokens, s.heads, s.dv}),
                                   .a = o.f32("a", {tokens, rates}),
                                   .b = is_delta ? o.f32("b", {tokens, s.heads}) : Tensor(),
                                   .beta_scale = s.dk > 1 ? 1.75f : 1.0f,
                                   .rate = o.x("rate", {s.heads}),
                                   .shift = o.x("shift", {rates}),
                                   .skip = is_delta ? Tensor() : o.x("skip", {s.heads}),
                                   .states = o.inout_f32("states" + name, {kStates, s.heads, s.dk, s.dv}),
                                   .runs = runs_of(runs)});
           }
         }});
    cases.push_back(
        {rule_name + "_backward" + size, [s, rule, is_delta, rates](const Kernels& k, Stream& stream, Operands& o) {
           const Shape keys{kWholeTokens, s.keys, s.dk}, values{kWholeTokens, s.heads, s.dv},
               decays{kWholeTokens, rates}, gates{kWholeTokens, s.heads}, heads{s.heads};
           for (const bool has_sums : {true, false})
             k.recurrence_backward(stream, {.rule = rule,
                                            .dq = o.out("dq", keys),
                                            .dk = o.out("dk", keys),
                                            .dv = o.out("dv", values),
                                            .da = o.out_f32("da", decays),
                                            .db = is_delta ? o.out_f32("db", gates) : Tensor(),
                                            .drate = has_sums ? o.inout_f32("drate", heads) : Tensor(),
                                            .dshift = has_sums ? o.inout_f32("dshift", {rates}) : Tensor(),
                                            .dskip = has_sums && !is_delta ? o.inout_f32("dskip", heads) : Tensor(),
                                            .dy = o.x("dy", values),
                                            .q = o.x("q", keys),
                                            .k = o.x("k", keys),
                                            .v = o.x("v", values),
                                            .a = o.f32("a", decays),
                                            .b = is_delta ? o.f32("b", gates) : Tensor(),
                                            .rate = o.x("rate", heads),
                                            .shift = o.x("shift", {rates}),
                                            .skip = is_delta ? Tensor() : o.x("skip", heads),
                                            .beta_scale = s.dk > 1 ? 1.75f : 1.0f,
                                            .runs = runs_of(kWholeRuns)});
         }});
  }
}

}  // namespace

void add_recurrence_cases(std::vector<ParityCase>& cases) {
  add_conv_cases(cases);
  add_state_cases(cases, "gated_delta", StateRule::delta, false);
  add_state_cases(cases, "kimi_delta", StateRule::delta, true);
  add_state_cases(cases, "selective_state", StateRule::selective, false);
}

}  // namespace weft
