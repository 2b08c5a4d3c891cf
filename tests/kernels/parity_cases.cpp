// The parity cases: every op, odd sizes, shapes of documents.
#include "kernels/parity_cases.h"

#include "kernels/masters.h"
#include "kernels/recurrence_parity_cases.h"
#include "support/attention_spans.h"

namespace weft {
namespace {

constexpr double kF32Noise = 1e-5;  // the same for f32: sums of a few hundred products

const Activation kActivations[] = {Activation::gelu,         Activation::gelu_tanh,      Activation::relu,
                                   Activation::relu_squared, Activation::silu,           Activation::gelu_quick,
                                   Activation::swiglu_oai,   Activation::swiglu_clipped, Activation::sigmoid,
                                   Activation::tanh,         Activation::identity};

// ---- matrix products ----
struct MatmulSize {
  int64_t m, n, k;
};

Tensor a_of(Operands& o, MatmulSize s, bool transpose) {
  return o.x("a", transpose ? Shape{s.k, s.m} : Shape{s.m, s.k});
}
Tensor b_of(Operands& o, MatmulSize s, bool transpose) {
  return o.x("b", transpose ? Shape{s.n, s.k} : Shape{s.k, s.n});
}

constexpr MatmulSize kMatmulSizes[] = {{1, 1, 1},    {5, 7, 3},     {1, 130, 67},  {33, 65, 17},
                                       {64, 64, 64}, {70, 129, 96}, {130, 48, 200}};

std::string with(std::string_view name, MatmulSize s) { return fmt::format("{} of {}x{}x{}", name, s.m, s.n, s.k); }

void run_packed_matmul(MatmulSize s, bool transpose_b, const Kernels& k, Stream& stream, Operands& o) {
  const Tensor b = b_of(o, s, transpose_b);
  MatmulArgs args{.y = o.out(with("y", s), {s.m, s.n}), .a = a_of(o, s, false), .b = b, .transpose_b = transpose_b};
  args.epilogue.bias = o.x("bias", {s.n});
  const size_t bytes = k.packed_matmul_b_bytes(b.dtype(), s.k, s.n, transpose_b);
  if (bytes) {
    args.packed_b = stream.allocator().empty(DType::u8, {int64_t(bytes)});
    k.pack_matmul_b(stream, args.packed_b, b, transpose_b);
  }
  k.matmul(stream, args);
}

void add_matmul_cases(std::vector<ParityCase>& cases) {
  for (const char* transposed : {"", "_a", "_b"}) {
    const bool ta = transposed == std::string_view("_a"), tb = transposed == std::string_view("_b");
    const auto plain = [=](const Kernels& k, Stream& stream, Operands& o) {
      for (const MatmulSize s : kMatmulSizes)
        k.matmul(stream, {.y = o.out(with("y", s), {s.m, s.n}),
                          .a = a_of(o, s, ta),
                          .b = b_of(o, s, tb),
                          .transpose_a = ta,
                          .transpose_b = tb});
    };
    const auto accumulate = [=](const Kernels& k, Stream& stream, Operands& o) {
      for (const MatmulSize s : kMatmulSizes)
        for (const bool is_f32 : {false, true})
          k.matmul(stream,
                   {.y = is_f32 ? o.inout_f32(with("f32 y", s), {s.m, s.n}) : o.inout(with("y", s), {s.m, s.n}),
                    .a = a_of(o, s, ta),
                    .b = b_of(o, s, tb),
                    .transpose_a = ta,
                    .transpose_b = tb,
                    .accumulate = true});
    };
    const auto packed = [=](const Kernels& k, Stream& stream, Operands& o) {
      for (const MatmulSize s : kMatmulSizes) run_packed_matmul(s, tb, k, stream, o);
    };
    cases.push_back({fmt::format("matmul{}", transposed), plain});
    cases.push_back({fmt::format("matmul{}_accumulate", transposed), accumulate});
    if (!ta) cases.push_back({fmt::format("matmul{}_packed_bias", transposed), packed});
  }
}

void add_epilogue_cases(std::vector<ParityCase>& cases) {
  using Kind = Epilogue::Kind;
  const Shape y{37, 75};
  for (const Activation f : kActivations) {
    const auto add = [&](std::string_view kind, bool transpose_b, auto epilogue) {
      // Backends may take y from its stored, rounded form.
      cases.push_back({fmt::format("matmul_{}_{}", kind, name_of(f)),
                       [=](const Kernels& k, Stream& stream, Operands& o) {
                         Epilogue e = epilogue(o);
                         e.f = f;
                         k.matmul(stream, {.y = o.out("y", y),
                                           .a = o.x("a", {37, 50}),
                                           .b = o.x("b", transpose_b ? Shape{75, 50} : Shape{50, 75}),
                                           .transpose_b = transpose_b,
                                           .epilogue = e});
                       },
                       0x1p-8});
    };
    add("activate", true, [=](Operands& o) {
      return Epilogue{.kind = Kind::activate, .bias = o.x("bias", {75}), .act = o.out("act", y)};
    });
    add("gated", true,
        [=](Operands& o) { return Epilogue{.kind = Kind::gated, .act = o.out("act", y), .gate = o.x("gate", y)}; });
    add("activate_backward", false,
        [=](Operands& o) { return Epilogue{.kind = Kind::activate_backward, .pre = o.x("pre", y)}; });
    add("gated_backward", false, [=](Operands& o) {
      return Epilogue{
          .kind = Kind::gated_backward, .gate = o.x("gate", y), .up = o.x("up", y), .dgate = o.out("dgate", y)};
    });
  }
}

// Groups of few rows and of many, and without any.
constexpr int64_t kFewOfEach[] = {0, 1, 1, 6, 17, 17}, kManyOfEach[] = {0, 0, 40, 41, 97, 107};

void add_grouped_cases(std::vector<ParityCase>& cases) {
  using Kind = Epilogue::Kind;
  constexpr int64_t kGroups = 5, kN = 24, kK = 72;
  for (const bool is_many : {false, true}) {
    const std::span<const int64_t> starts(is_many ? kManyOfEach : kFewOfEach);
    const Shape y{starts.back(), kN};
    const auto args = [=](Operands& o, bool transpose_b, std::string_view b, const Tensor& out) {
      return GroupedMatmulArgs{.y = out,
                               .a = o.x("a", {starts.back(), kK}),
                               .b = o.x(b, transpose_b ? Shape{kGroups, kN, kK} : Shape{kGroups, kK, kN}),
                               .transpose_b = transpose_b,
                               .starts = starts};
    };
    const auto add = [&](std::string_view name, auto run) {
      cases.push_back({fmt::format("grouped_matmuls_{}_of_{}", name, is_many ? "many" : "few"),
                       [=](const Kernels& k, Stream& stream, Operands& o) { run(k, stream, o); }, 0x1p-8});
    };
    add("gated", [=](const Kernels& k, Stream& stream, Operands& o) {
      GroupedMatmulArgs gate = args(o, true, "gate of", o.out("gate", y));
      GroupedMatmulArgs up = gate;
      up.y = o.out("up", y), up.b = o.x("up of", {kGroups, kN, kK});
      up.epilogue = {.kind = Kind::gated, .act = o.out("act", y), .gate = gate.y};
      k.grouped_matmuls(stream, std::array{gate, up});
    });
    add("gated_with_biases", [=](const Kernels& k, Stream& stream, Operands& o) {
      GroupedMatmulArgs gate = args(o, true, "gate of", o.out("gate", y));
      GroupedMatmulArgs up = gate;
      gate.epilogue.bias = o.x("gate bias", {kGroups, kN});
      up.y = o.out("up", y), up.b = o.x("up of", {kGroups, kN, kK});
      up.epilogue = {.kind = Kind::gated,
                     .f = Activation::swiglu_oai,
                     .bias = o.x("up bias", {kGroups, kN}),
                     .act = o.out("act", y),
                     .gate = gate.y};
      k.grouped_matmuls(stream, std::array{gate, up});
    });
    add("accumulated", [=](const Kernels& k, Stream& stream, Operands& o) {
      GroupedMatmulArgs sum = args(o, true, "b", o.inout("y", y));
      sum.accumulate = true;
      k.grouped_matmuls(stream, {&sum, 1});
    });
    add("backward", [=](const Kernels& k, Stream& stream, Operands& o) {
      GroupedMatmulArgs down = args(o, false, "b", o.out("y", y));
      down.epilogue = {
          .kind = Kind::gated_backward, .gate = o.x("gate", y), .up = o.x("up", y), .dgate = o.out("dgate", y)};
      k.grouped_matmuls(stream, {&down, 1});
    });
    cases.push_back({fmt::format("grouped_gradients_of_{}", is_many ? "many" : "few"),
                     [=](const Kernels& k, Stream& stream, Operands& o) {
                       k.grouped_gradients(stream, {.y = o.out_f32("y", {kGroups, kN, kK}),
                                                    .a = o.x("a", y),
                                                    .b = o.x("b", {starts.back(), kK}),
                                                    .starts = starts});
                     },
                     0x1p-8});
  }
}

// ---- attention ----
struct ParityAttention {
  std::string name;
  int num_heads, num_kv_heads, head_dim;
  std::vector<int32_t> q_start, k_start;
  bool causal = true;
  float dropout = 0;
  int window = 0, value_dim = 0;
  float softcap = 0;
};

void run_attention(const ParityAttention& c, const Kernels& kernels, Stream& stream, Operands& o) {
  const int64_t queries = c.q_start.back(), keys = c.k_start.back();
  const int value_dim = c.value_dim ? c.value_dim : c.head_dim;
  const Shape q_shape{queries, c.num_heads, c.head_dim}, k_shape{keys, c.num_kv_heads, c.head_dim};
  const Shape y_shape{queries, c.num_heads, value_dim}, v_shape{keys, c.num_kv_heads, value_dim};
  const std::vector<AttentionSpan> spans = spans_of(c.q_start, c.k_start, c.causal, 1000);
  const AttentionShape shape{.num_heads = c.num_heads,
                             .num_kv_heads = c.num_kv_heads,
                             .head_dim = c.head_dim,
                             .spans = spans.data(),
                             .num_spans = int(spans.size()),
                             .scale = 1 / std::sqrt(float(c.head_dim)),
                             .softcap = c.softcap,
                             .window = c.window,
                             .value_dim = c.value_dim};
  const DropoutKey dropout{.p = c.dropout, .seed = 9, .stream = 3};
  AttentionArgs args{.y = o.out("y", y_shape), .lse = o.out_f32("lse", {c.num_heads, queries})};
  args.q = o.x("q", q_shape), args.k = o.x("k", k_shape), args.v = o.x("v", v_shape);
  args.shape = shape, args.dropout = dropout;
  kernels.attention(stream, args);
  AttentionBackwardArgs back{.dq = o.out("dq", q_shape), .dk = o.out("dk", k_shape), .dv = o.out("dv", v_shape)};
  back.dy = o.x("dy", y_shape), back.y = args.y, back.lse = args.lse;
  back.q = args.q, back.k = args.k, back.v = args.v;
  back.shape = shape, back.dropout = dropout;
  kernels.attention_backward(stream, back);
  args.lse = {};
  args.y = o.out("y without lse", y_shape);
  kernels.attention(stream, args);
  args.y = o.out("y with a bias by distance", y_shape);
  args.bias = o.f32("bias", {c.num_heads, 2 * 20 + 1});
  kernels.attention(stream, args);

  args.bias = {}, args.key_bits = back.key_bits = o.words("key bits", {queries, (keys + 31) / 32});
  args.y = o.out("y of selected keys", y_shape), args.lse = o.out_f32("lse of them", {c.num_heads, queries});
  kernels.attention(stream, args);
  back.y = args.y, back.lse = args.lse;
  back.dq = o.out("dq of them", q_shape), back.dk = o.out("dk of them", k_shape);
  back.dv = o.out("dv of them", v_shape);
  kernels.attention_backward(stream, back);
}

void add_attention_cases(std::vector<ParityCase>& cases) {
  for (const ParityAttention& c : {
           ParityAttention{"one_token", 1, 1, 8, {0, 1}, {0, 1}},
           ParityAttention{"causal", 2, 2, 16, {0, 33}, {0, 33}},
           ParityAttention{"full", 2, 2, 16, {0, 33}, {0, 33}, false},
           ParityAttention{"shared_keys", 6, 2, 64, {0, 70}, {0, 70}},
           ParityAttention{"long", 2, 1, 32, {0, 300}, {0, 300}},
           ParityAttention{"odd_head_dim", 3, 1, 20, {0, 45}, {0, 45}},
           ParityAttention{"wide_head", 2, 1, 128, {0, 67}, {0, 67}},
           ParityAttention{"documents", 4, 2, 32, {0, 1, 40, 40, 57, 130}, {0, 1, 40, 40, 57, 130}},
           ParityAttention{"documents_full", 4, 4, 32, {0, 5, 40, 97}, {0, 5, 40, 97}, false},
           ParityAttention{"decode", 8, 2, 64, {0, 1, 2, 3}, {0, 90, 91, 230}},
           ParityAttention{"chunk", 4, 2, 32, {0, 20, 57}, {0, 75, 200}},
           ParityAttention{"few_keys", 2, 2, 16, {0, 40}, {0, 23}},
           ParityAttention{"cross", 2, 1, 16, {0, 20, 41}, {0, 3, 77}, false},
           ParityAttention{"dropout", 4, 2, 32, {0, 30, 90}, {0, 30, 90}, true, 0.2f},
           ParityAttention{"window", 4, 2, 32, {0, 30, 190}, {0, 30, 190}, true, 0, 17},
           ParityAttention{"window_decode", 4, 2, 32, {0, 1, 3}, {0, 90, 230}, true, 0, 17},
           ParityAttention{"narrow_values", 4, 4, 48, {0, 80}, {0, 80}, true, 0, 0, 32},
           ParityAttention{"softcap", 4, 2, 32, {0, 80}, {0, 80}, true, 0, 0, 0, 1.5f},
       })
    // Probabilities, and y before the backward, are rounded to bf16.
    cases.push_back({"attention_" + c.name,
                     [c](const Kernels& k, Stream& stream, Operands& o) { run_attention(c, k, stream, o); }, 0x1p-7,
                     false});
}

void add_merge_cases(std::vector<ParityCase>& cases) {
  cases.push_back({"attention_merge", [](const Kernels& k, Stream& stream, Operands& o) {
                     for (const int64_t dim : {1, 20, 64}) {
                       const Shape y{33, 3, dim}, lse{3, 33};
                       const Tensor acc_lse = o.inout_f32("acc_lse", lse), part_lse = o.f32("part_lse", lse);
                       k.fill(stream, acc_lse.slice_rows(1, 1), -HUGE_VALF);
                       k.fill(stream, part_lse.slice_rows(2, 1), -HUGE_VALF);
                       k.attention_merge(stream, o.inout_f32("acc", y), acc_lse, o.x("part", y), part_lse);
                     }
                   }});
}

void add_sink_cases(std::vector<ParityCase>& cases) {
  for (const int64_t dim : {1, 20, 64})
    cases.push_back({fmt::format("attention_sinks_{}", dim), [dim](const Kernels& k, Stream& stream, Operands& o) {
                       const Shape y{33, 3, dim}, lse{3, 33};
                       const Tensor joined = o.inout("y", y), joined_lse = o.inout_f32("lse", lse);
                       k.fill(stream, joined_lse.slice_rows(1, 1), -HUGE_VALF);  // of rows that see no key
                       k.attention_sinks(stream, joined, joined_lse, o.x("sinks", {3}));
                     }});
  for (const int64_t tokens : {0, 1, 257})
    cases.push_back(
        {fmt::format("attention_sinks_backward_{}", tokens), [tokens](const Kernels& k, Stream& stream, Operands& o) {
           const Shape y{tokens, 3, 20};
           k.attention_sinks_backward(stream, o.inout_f32("dsinks", {3}), o.x("dy", y), o.x("y", y),
                                      o.f32("lse", {3, tokens}), o.x("sinks", {3}));
         }});
}

void add_rope_cases(std::vector<ParityCase>& cases) {
  for (const bool inverse : {false, true})
    for (const int64_t half : {1, 13, 32})
      cases.push_back(
          {fmt::format("rope_{}{}", half, inverse ? "_inverse" : ""),
           [=](const Kernels& k, Stream& stream, Operands& o) {
             std::vector<int32_t> positions(29);
             for (size_t t = 0; t < positions.size(); ++t) positions[t] = int32_t(t * 7 % 31);
             const Tensor cos = o.f32("cos", {31, half}), sin = o.f32("sin", {31, half});
             const auto rope = [&](const char* name, int64_t rows, int64_t heads, int64_t dim) {
               return RopeArgs{o.inout(name, {rows, heads, dim}), cos, sin, positions.data() + 29 - rows, inverse};
             };
             // Queries and keys; keys of fewer heads, of other elements that stay, and of fewer rows.
             k.rope(stream, std::array{rope("x", 29, 3, 2 * half + (half == 13 ? 5 : 0))});
             k.rope(stream, std::array{rope("q", 29, 5, 2 * half), rope("k", 11, 2, 2 * half + 8)});
             k.rope(stream, std::array{rope("none", 0, 5, 2 * half), rope("all", 29, 1, 2 * half)});
             // Queries that are scaled by their position, beside keys that are not.
             RopeArgs scaled = rope("scaled", 29, 3, 2 * half + 5);
             scaled.factors = o.f32("factors", {31});
             k.rope(stream, std::array{scaled, rope("keys", 29, 2, 2 * half)});
           },
           1e-5, false});
}

void add_heads_cases(std::vector<ParityCase>& cases) {
  cases.push_back({"join_heads", [](const Kernels& k, Stream& stream, Operands& o) {
                     for (const int64_t tokens : {0, 1, 37})
                       k.join_heads(stream, o.out("y", {tokens, 3, 4 + 21}), o.x("shared", {tokens, 4}),
                                    o.x("own", {tokens, 3, 21}));
                   }});
  cases.push_back({"split_heads", [](const Kernels& k, Stream& stream, Operands& o) {
                     for (const int64_t tokens : {0, 1, 37})
                       k.split_heads(stream, o.out("dshared", {tokens, 19}), o.out("down", {tokens, 5, 8}),
                                     o.x("dy", {tokens, 5, 19 + 8}));
                   }});
  cases.push_back({"part_of_heads", [](const Kernels& k, Stream& stream, Operands& o) {
                     for (const int64_t tokens : {0, 1, 37})
                       for (const int64_t first : {0, 5, 16}) {
                         k.take_heads(stream, o.out("y", {3, tokens, 8}), o.x("x", {tokens, 3, 24}), first);
                         k.put_heads(stream, o.inout("whole", {tokens, 3, 24}), o.x("part", {3, tokens, 8}), first);
                       }
                   }});
}

// ---- norms and activations ----
// Where there is a bias, the weights have an offset too.
void run_norm(NormKind kind, int64_t cols, bool has_residual, bool has_bias, const Kernels& k, Stream& stream,
              Operands& o) {
  const Shape shape{23, cols};
  NormArgs args{.kind = kind, .y = o.out("y", shape), .rstd = o.out_f32("rstd", {23}), .x = o.x("x", shape)};
  if (kind == NormKind::layer) args.mean = o.out_f32("mean", {23});
  if (has_residual) args.residual = o.x("residual", shape), args.sum = o.out("sum", shape);
  if (has_bias) args.bias = o.x("bias", {cols}), args.weight_offset = 1;
  args.weight = o.x("weight", {cols});
  k.norm(stream, args);
}

void run_norm_backward(NormKind kind, int64_t cols, bool has_residual, bool has_bias, const Kernels& k,
                       Stream& stream, Operands& o) {
  const Shape shape{23, cols};
  NormBackwardArgs args{.kind = kind, .accumulate = has_residual, .dy = o.x("dy", shape)};
  args.x = o.x("x", shape), args.weight = o.x("weight", {cols});
  args.rstd = o.positive_f32("rstd", {23});
  if (kind == NormKind::layer) args.mean = o.f32("mean", {23});
  args.dweight = has_residual ? o.inout_f32("dweight", {cols}) : o.out_f32("dweight", {cols});
  if (has_bias) args.weight_offset = 1;
  if (has_bias) args.dbias = has_residual ? o.inout_f32("dbias", {cols}) : o.out_f32("dbias", {cols});
  if (has_residual)
    args.dsum = args.dx = o.inout("dx", shape);
  else
    args.dx = o.out("dx", shape);
  k.norm_backward(stream, args);
  args.dweight = args.dbias = {};
  args.dsum = o.x("dsum", shape);
  args.dx = o.out("dx alone", shape);
  k.norm_backward(stream, args);
}

void add_norm_cases(std::vector<ParityCase>& cases) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer})
    for (const bool has_residual : {false, true})
      for (const bool has_bias : {false, true}) {
        const std::string suffix = fmt::format("{}{}{}", kind == NormKind::rms ? "rms" : "layer",
                                               has_residual ? "_residual" : "", has_bias ? "_bias" : "");
        const auto forward = [=](const Kernels& k, Stream& stream, Operands& o) {
          for (const int64_t cols : {1, 7, 64, 515}) run_norm(kind, cols, has_residual, has_bias, k, stream, o);
        };
        const auto backward = [=](const Kernels& k, Stream& stream, Operands& o) {
          for (const int64_t cols : {1, 7, 64, 515})
            run_norm_backward(kind, cols, has_residual, has_bias, k, stream, o);
        };
        // The sum may be rounded before it is normalised.
        cases.push_back({"norm_" + suffix, forward, has_residual ? 0x1p-8 : 1e-5});
        cases.push_back({"norm_backward_" + suffix, backward});
      }
}

// Streams of few columns, which a warp has, and of many, which a block has.
struct StreamsSize {
  int64_t rows, streams, cols;
};
constexpr StreamsSize kStreamsSizes[] = {{0, 2, 3}, {3, 1, 7}, {5, 4, 64}, {2, 8, 515}, {2, 3, 1032}, {40, 2, 5}};

// How many kinds of weights are made: of reading, of writing, of mixing.
constexpr const char* kKindsOfStreams[] = {"", "_gates", "_mix"};
int64_t weights_of(StreamsSize s, int kinds) {
  return (std::min(kinds, 2) + (kinds == 3 ? s.streams : 0)) * s.streams;
}
constexpr StreamRule kStreamRule{
    .magnitude = 1.5f, .eps = 0.01f, .gate_eps = 0.02f, .norm_eps = 0.1f, .mix_steps = 6};

void run_read_streams(StreamsSize s, int kinds, const Kernels& k, Stream& stream, Operands& o) {
  k.read_streams(stream, {.y = o.out("y", {s.rows, s.cols}),
                          .gates = kinds > 1 ? o.out_f32("gates", {s.rows, s.streams}) : Tensor(),
                          .mix = kinds > 2 ? o.out_f32("mix", {s.rows, s.streams * s.streams}) : Tensor(),
                          .rstd = o.out_f32("rstd", {s.rows}),
                          .x = o.x("x", {s.rows, s.streams * s.cols}),
                          .products = o.f32("products", {s.rows, weights_of(s, kinds)}),
                          .base = o.x("base", {weights_of(s, kinds)}),
                          .scale = o.x("scale", {kinds}),
                          .rule = kStreamRule});
}

void run_read_streams_backward(StreamsSize s, int kinds, const Kernels& k, Stream& stream, Operands& o) {
  const Shape all{s.rows, s.streams * s.cols}, logits{s.rows, weights_of(s, kinds)};
  for (const bool is_around : {false, true})
    k.read_streams_backward(
        stream, {.dx = o.out("dx", all),
                 .dproducts = o.out_f32("dproducts", logits),
                 .dlogits = o.out_f32("dlogits", logits),
                 .dscales = o.out_f32("dscales", {s.rows, kinds}),
                 .dy = o.x("dy", {s.rows, s.cols}),
                 .dsum = is_around ? o.x("dsum", all) : Tensor(),
                 .dgates = kinds > 1 && is_around ? o.f32("dgates", {s.rows, s.streams}) : Tensor(),
                 .dmix = kinds > 2 && is_around ? o.f32("dmix", {s.rows, s.streams * s.streams}) : Tensor(),
                 .x = o.x("x", all),
                 .products = o.f32("products", logits),
                 .rstd = o.positive_f32("rstd", {s.rows}),
                 .base = o.x("base", {weights_of(s, kinds)}),
                 .scale = o.x("scale", {kinds}),
                 .rule = kStreamRule});
}

void run_write_streams(StreamsSize s, const Kernels& k, Stream& stream, Operands& o) {
  const Shape all{s.rows, s.streams * s.cols}, of_gates{s.rows, s.streams}, row{s.rows, s.cols};
  k.write_streams(stream, {o.out("y", all), o.x("x", all), o.x("branch", row), o.f32("gates", of_gates)});
  k.write_streams(stream, {o.out("copies", all), {}, o.x("branch", row), {}});
  k.write_streams_backward(stream, {.dbranch = o.out("dbranch", row),
                                    .dgates = o.out_f32("dgates", of_gates),
                                    .dy = o.x("dy", all),
                                    .branch = o.x("branch", row),
                                    .gates = o.f32("gates", of_gates)});
  k.write_streams_backward(
      stream, {.dbranch = o.out("sums", row), .dgates = {}, .dy = o.x("dy", all), .branch = {}, .gates = {}});
}

void run_mix_streams(StreamsSize s, const Kernels& k, Stream& stream, Operands& o) {
  const Shape all{s.rows, s.streams * s.cols}, of_gates{s.rows, s.streams}, row{s.rows, s.cols};
  const Shape of_mix{s.rows, s.streams * s.streams};
  k.write_streams(
      stream, {o.out("y", all), o.x("x", all), o.x("branch", row), o.f32("gates", of_gates), o.f32("mix", of_mix)});
  k.write_streams_backward(stream, {.dx = o.out("dx", all),
                                    .dbranch = o.out("dbranch", row),
                                    .dgates = o.out_f32("dgates", of_gates),
                                    .dmix = o.out_f32("dmix", of_mix),
                                    .dy = o.x("dy", all),
                                    .branch = o.x("branch", row),
                                    .gates = o.f32("gates", of_gates),
                                    .x = o.x("x", all),
                                    .mix = o.f32("mix", of_mix)});
}

void add_streams_cases(std::vector<ParityCase>& cases) {
  const auto add = [&](std::string name, auto run) {
    cases.push_back({std::move(name), [run](const Kernels& k, Stream& stream, Operands& o) {
                       for (const StreamsSize s : kStreamsSizes) run(s, k, stream, o);
                     }});
  };
  for (int kinds = 1; kinds <= 3; ++kinds) {
    const std::string suffix = kKindsOfStreams[kinds - 1];
    add("read_streams" + suffix, [=](StreamsSize s, const Kernels& k, Stream& stream, Operands& o) {
      run_read_streams(s, kinds, k, stream, o);
    });
    add("read_streams_backward" + suffix, [=](StreamsSize s, const Kernels& k, Stream& stream, Operands& o) {
      run_read_streams_backward(s, kinds, k, stream, o);
    });
  }
  add("write_streams", run_write_streams);
  add("write_streams_mix", run_mix_streams);
}

// Rows that a warp has, and those of a block.
const Shape kXieluShapes[] = {{0, 3}, {3, 1}, {5, 64}, {2, 515}, {3, 1032}, {40, 4100}};

void add_xielu_cases(std::vector<ParityCase>& cases) {
  cases.push_back({"xielu", [](const Kernels& k, Stream& stream, Operands& o) {
                     for (const Shape& shape : kXieluShapes)
                       k.xielu(stream, o.out("y", shape), o.x("x", shape), o.x("positive", {1}),
                               o.x("negative", {1}));
                   }});
  cases.push_back({"xielu_backward", [](const Kernels& k, Stream& stream, Operands& o) {
                     for (const Shape& shape : kXieluShapes)
                       for (const bool learns : {false, true})
                         k.xielu_backward(stream, o.out("dx", shape),
                                          learns ? o.out_f32("dpositive", {shape[0]}) : Tensor(),
                                          learns ? o.out_f32("dnegative", {shape[0]}) : Tensor(), o.x("dy", shape),
                                          o.x("x", shape), o.x("positive", {1}), o.x("negative", {1}));
                   }});
}

void add_activation_cases(std::vector<ParityCase>& cases) {
  for (const Activation f : kActivations) {
    const auto add = [&](std::string_view name, auto run) {
      cases.push_back({fmt::format("{}_{}", name, name_of(f)), [=](const Kernels& k, Stream& stream, Operands& o) {
                         for (const int64_t count : {1, 31, 5003}) run(k, stream, o, Shape{count});
                       }});
    };
    add("activation", [=](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
      k.activation(stream, o.out("y", shape), o.x("x", shape), f);
    });
    add("activation_backward", [=](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
      k.activation_backward(stream, o.out("dx", shape), o.x("dy", shape), o.x("x", shape), f);
    });
    add("gated_activation", [=](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
      k.gated_activation(stream, o.out("y", shape), o.x("gate", shape), o.x("up", shape), f);
    });
    add("gated_activation_backward", [=](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
      k.gated_activation_backward(stream, o.out("dgate", shape), o.out("dup", shape), o.x("dy", shape),
                                  o.x("gate", shape), o.x("up", shape), f);
    });
  }
}

void add_dropout_cases(std::vector<ParityCase>& cases) {
  for (const float p : {0.0f, 0.1f, 0.75f})
    cases.push_back(
        {fmt::format("dropout_{}percent", int(p * 100)), [=](const Kernels& k, Stream& stream, Operands& o) {
           const DropoutKey key{.p = p, .seed = 5, .stream = 8, .first = (uint64_t(1) << 32) - 100};
           k.dropout(stream, o.out("y", {5003}), o.x("x", {5003}), key);
           const Tensor in_place = o.inout("in place", {77});
           k.dropout(stream, in_place, in_place, key);
         }});
}

// ---- tokens and loss ----
void add_token_cases(std::vector<ParityCase>& cases) {
  for (const int64_t hidden : {1, 33, 256})
    for (const bool has_positions : {false, true})
      cases.push_back(
          {fmt::format("embedding_{}{}", hidden, has_positions ? "_positions" : ""),
           [=](const Kernels& k, Stream& stream, Operands& o) {
             std::vector<int32_t> ids(101), positions(101);
             for (int i = 0; i < 101; ++i) ids[size_t(i)] = i * 17 % 13, positions[size_t(i)] = i % 50;
             k.embedding(stream, o.out("y", {101, hidden}), o.x("table", {13, hidden}), ids.data(),
                         has_positions ? o.x("position_table", {50, hidden}) : Tensor(),
                         has_positions ? positions.data() : nullptr);
             k.embedding_backward(stream, o.inout_f32("dtable", {13, hidden}), o.x("dy", {101, hidden}), ids.data());
           }});
  for (const int64_t vocab : {1, 7, 64, 5003})
    for (const float scale : {0.0f, 0.125f})
      cases.push_back({fmt::format("cross_entropy_{}{}", vocab, scale == 0 ? "" : "_gradient"),
                       [=](const Kernels& k, Stream& stream, Operands& o) {
                         std::vector<int32_t> targets(19);
                         for (int t = 0; t < 19; ++t) targets[size_t(t)] = t % 5 == 3 ? -1 : int32_t(t * 31 % vocab);
                         k.cross_entropy(stream, o.out_f32("losses", {19}), o.inout("logits", {19, vocab}),
                                         targets.data(), scale);
                       }});
  for (const int64_t cols : {0, 1, 7, 64, 5003})
    cases.push_back(
        {fmt::format("cross_entropy_of_{}_columns", cols), [=](const Kernels& k, Stream& stream, Operands& o) {
           std::vector<int32_t> targets(19);
           for (int t = 0; t < 19; ++t) targets[size_t(t)] = t % 5 == 3 ? -1 : int32_t(t * 31 % (2 * cols + 100));
           k.cross_entropy_stats(stream, o.out_f32("stats", {19, 3}), o.x("logits", {19, cols}), targets.data(), 100);
           k.cross_entropy_gradient(stream, o.inout("logits", {19, cols}), o.positive_f32("lse", {19}),
                                    cols % 2 == 0 ? o.f32("factors", {19}) : Tensor{}, targets.data(), 100, 0.125f);
         }});
}

// ---- element-wise, reductions, optimizer ----
void run_adamw(const Kernels& k, Stream& stream, Operands& o, Shape shape) {
  const Tensor master = o.inout_f32("master", shape),
               value = o.type() != DType::f32 ? o.out("value", shape) : Tensor();
  AdamWArgs args{.grad_scale = 0.7f, .lr = 1e-2f, .weight_decay = 0.1f};
  args.bias_correction1 = 0.3f, args.bias_correction2 = 0.02f;
  args.m = o.inout_f32("m", shape), args.v = o.recorded("v", o.positive_f32("v", shape));
  on_masters(k, stream, master, value, [&](const Tensor& masters, const Tensor& beside) {
    args.master = masters, args.value = beside;
    for (const Tensor& grad : {o.f32("grad", shape), o.x("grad of the value's type", shape)}) {
      args.grad = grad;
      k.adamw(stream, args);
    }
  });
}

void add_elementwise_cases(std::vector<ParityCase>& cases) {
  const auto add = [&](std::string name, auto run) {
    cases.push_back({std::move(name), [=](const Kernels& k, Stream& stream, Operands& o) {
                       for (const int64_t count : {1, 63, 70001}) run(k, stream, o, Shape{count});
                     }});
  };
  add("add", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    k.add(stream, o.out("y", shape), o.x("a", shape), o.x("b", shape));
    const Tensor in_place = o.inout("in place", shape);
    k.add(stream, in_place, in_place, o.x("b", shape));
  });
  add("accumulate", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    k.accumulate(stream, o.inout_f32("sum", shape), o.x("x", shape));
  });
  add("scale", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    k.scale(stream, o.out("y", shape), o.x("x", shape), -0.3f);
    const Tensor in_place = o.inout("in place", shape);
    k.scale(stream, in_place, in_place, 3);
  });
  add("softcap", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    k.softcap(stream, o.out("y", shape), o.x("x", shape), 0.6f);
    const Tensor in_place = o.inout("in place", shape);
    k.softcap(stream, in_place, in_place, 2);
  });
  add("softcap_backward", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    k.softcap_backward(stream, o.out("dx", shape), o.x("dy", shape), o.x("y", shape), 4);
    const Tensor in_place = o.inout("in place", shape);
    k.softcap_backward(stream, in_place, in_place, o.x("y", shape), 4);
  });
  add("fill", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    k.fill(stream, o.out("y", shape), 1.7f);
    k.fill(stream, o.out("zeros", shape), 0);
  });
  add("convert", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    for (const DType to : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      k.convert(stream, o.out_of(to, fmt::format("to {}", name_of(to)), shape), o.x("x", shape));
      k.convert(stream, o.out(fmt::format("from {}", name_of(to)), shape), o.of(to, "x", shape));
    }
  });
  add("sum_of_squares", [](const Kernels& k, Stream& stream, Operands& o, Shape shape) {
    o.result("sum", k.sum_of_squares(stream, std::vector{o.x("x", shape)}));
    o.result("sum of both", k.sum_of_squares(stream, std::vector{o.x("x", shape), o.f32("y", shape)}));
    o.result("sum of none", k.sum_of_squares(stream, {}));
  });
  add("adamw", run_adamw);
  for (const bool accumulate : {false, true})
    cases.push_back(
        {accumulate ? "sum_rows_accumulate" : "sum_rows", [=](const Kernels& k, Stream& stream, Operands& o) {
           for (const Shape shape : {Shape{1, 1}, Shape{97, 5}, Shape{3, 700}, Shape{200, 65}}) {
             const Shape cols{shape[1]};
             k.sum_rows(stream, accumulate ? o.inout_f32("y", cols) : o.out_f32("y", cols), o.x("x", shape),
                        accumulate);
           }
         }});
}

std::vector<ParityCase> make_cases() {
  std::vector<ParityCase> cases;
  add_matmul_cases(cases);
  add_epilogue_cases(cases);
  add_grouped_cases(cases);
  add_attention_cases(cases);
  add_merge_cases(cases);
  add_sink_cases(cases);
  add_rope_cases(cases);
  add_heads_cases(cases);
  add_recurrence_cases(cases);
  add_norm_cases(cases);
  add_streams_cases(cases);
  add_xielu_cases(cases);
  add_activation_cases(cases);
  add_dropout_cases(cases);
  add_token_cases(cases);
  add_elementwise_cases(cases);
  return cases;
}

// What rounding the exact result to a dtype may change, in parts of it.
double stored_rounding(DType type) {
  switch (type) {
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: return 0;
  }
}

// Values are of order 1, so where they cancel to nothing, the rounding of such values remains.
double largest_of(const std::vector<double>& values) {
  double largest = 0.1;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

const std::vector<ParityCase>& parity_cases() {
  static const std::vector<ParityCase> cases = make_cases();
  return cases;
}

std::vector<std::string> names_of_parity_cases() {
  std::vector<std::string> names;
  for (const ParityCase& c : parity_cases()) names.push_back(c.name);
  return names;
}

const ParityCase& parity_case(std::string_view name) {
  for (const ParityCase& c : parity_cases())
    if (c.name == name) return c;
  throw Error("no case is named {}", name);
}

void expect_parity(const ParityCase& c, const Kernels& kernels, Workbench& bench, DType type, int64_t guard) {
  Workbench host;
  Operands exact(host, type, true, guard), actual(bench, type, false, guard), again(bench, type, false, guard);
  c.run(reference_kernels(), host.stream, exact);
  c.run(kernels, bench.stream, actual);
  c.run(kernels, bench.stream, again);
  actual.expect_guards_untouched();
  ASSERT_EQ(actual.outputs().size(), exact.outputs().size());
  const double inside = type == DType::bf16 ? c.bf16_noise : type == DType::f16 ? c.bf16_noise / 8 : 0;
  const double noise = std::max(kF32Noise, inside);
  for (size_t i = 0; i < exact.outputs().size(); ++i) {
    const auto& [name, tensor] = actual.outputs()[i];
    const std::vector<double> expected = host.values(exact.outputs()[i].tensor), got = bench.values(tensor);
    const double absolute = noise * largest_of(expected), relative = stored_rounding(tensor.dtype());
    for (size_t j = 0; j < expected.size(); ++j) {
      if (expected[j] == got[j]) continue;  // infinities too
      ASSERT_NEAR(got[j], expected[j], relative * std::abs(expected[j]) + absolute)
          << name << ", element " << j << " of " << fmt::format("{}", tensor.shape());
    }
    const Tensor first = bench.on_host(tensor), second = bench.on_host(again.outputs()[i].tensor);
    ASSERT_EQ(std::memcmp(first.raw(), second.raw(), first.bytes()), 0) << name << " differs between two runs";
  }
}

}  // namespace weft
