// Kernels of the cuda backend on rows that threads share in every way: vectors or elements, by a warp or a block, in
// registers or read again, and sums in one pass or in two.
#include "kernels/masters.h"
#include "kernels/parity_cases.h"

namespace weft {
namespace {

NormArgs norm_args(Operands& o, NormKind kind, Shape shape) {
  NormArgs args{.kind = kind, .y = o.out("y", shape), .rstd = o.out_f32("rstd", {shape[0]}), .x = o.x("x", shape)};
  if (kind == NormKind::layer) args.mean = o.out_f32("mean", {shape[0]});
  args.weight = o.x("weight", {shape[1]});
  args.residual = o.x("residual", shape), args.sum = o.out("sum", shape);
  return args;
}

NormBackwardArgs norm_backward_args(Operands& o, NormKind kind, Shape shape) {
  NormBackwardArgs args{.kind = kind, .dx = o.out("dx", shape), .accumulate = false, .dy = o.x("dy", shape)};
  args.x = o.x("x", shape), args.weight = o.x("weight", {shape[1]}), args.dsum = o.x("dsum", shape);
  args.rstd = o.positive_f32("rstd", {shape[0]});
  if (kind == NormKind::layer) args.mean = o.f32("mean", {shape[0]});
  args.dweight = o.out_f32("dweight", {shape[1]}), args.dbias = o.out_f32("dbias", {shape[1]});
  return args;
}

std::vector<ParityCase> make_cases() {
  std::vector<ParityCase> cases;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    const std::string name = kind == NormKind::rms ? "rms" : "layer";
    cases.push_back({"norm_" + name,
                     [=](const Kernels& k, Stream& stream, Operands& o) {
                       for (const Shape shape : {Shape{9, 8}, Shape{3, 1032}, Shape{1, 17416}})
                         k.norm(stream, norm_args(o, kind, shape));
                     },
                     0x1p-8});
    cases.push_back({"norm_backward_" + name, [=](const Kernels& k, Stream& stream, Operands& o) {
                       for (const Shape shape : kind == NormKind::rms ? std::vector<Shape>{{1, 8200}, {531, 65}}
                                                                      : std::vector<Shape>{{3, 1032}})
                         k.norm_backward(stream, norm_backward_args(o, kind, shape));
                     }});
  }
  for (const bool accumulate : {false, true}) {
    const auto sums = [=](Operands& o, std::string_view name, int64_t cols) {
      return accumulate ? o.inout_f32(name, {cols}) : o.out_f32(name, {cols});
    };
    cases.push_back(
        {accumulate ? "sums_accumulate" : "sums", [=](const Kernels& k, Stream& stream, Operands& o) {
           for (const Shape shape : {Shape{0, 3}, Shape{1, 1}, Shape{65, 40}, Shape{300, 9}, Shape{7, 600}}) {
             k.sum_rows(stream, sums(o, "sum", shape[1]), o.x("a", shape), accumulate);
             k.dot_columns(stream, sums(o, "dot", shape[1]), o.x("a", shape), o.x("b", shape), accumulate);
           }
         }});
  }
  cases.push_back(
      {"columns", [](const Kernels& k, Stream& stream, Operands& o) {
         for (const Shape shape : {Shape{0, 3}, Shape{1, 1}, Shape{11, 40}, Shape{3, 1032}, Shape{5, 67}}) {
           k.dot_rows(stream, o.out_f32("dots", {shape[0]}), o.x("a", shape), o.x("b", shape));
           k.scale_columns(stream, o.out("y", shape), o.x("a", shape), o.f32("factors", {shape[1]}));
           const Tensor in_place = o.inout("in place", shape);
           k.scale_columns(stream, in_place, in_place, o.f32("factors", {shape[1]}));
         }
       }});
  cases.push_back({"tokens", [](const Kernels& k, Stream& stream, Operands& o) {
                     const std::vector<int32_t> ids = {4, 9, 4, 0, 12, 5, 4};
                     for (const int64_t cols : {8, 520}) {
                       const TableRows part(ids.data(), 4, 13);  // rows 4 to 9 of 13
                       k.embedding(stream, o.out("y", {7, cols}), o.x("table", {6, cols}), part, {}, nullptr);
                       k.embedding_backward(stream, o.inout_f32("dtable", {6, cols}), o.x("dy", {7, cols}), part);
                     }
                   }});
  cases.push_back({"cross_entropy", [](const Kernels& k, Stream& stream, Operands& o) {
                     const std::vector<int32_t> targets = {3, -1, 900};
                     const Tensor losses = o.out_f32("losses", {3});
                     k.cross_entropy(stream, losses, o.inout("logits", {3, 1032}), targets.data(), 0.5f);
                     const Tensor stats = o.out_f32("stats", {2, 3, 3}), lse = o.out_f32("lse", {3});
                     for (const int64_t part : {0, 1})
                       k.cross_entropy_stats(stream, stats.slice_rows(part, 1).slice_flat(0, {3, 3}),
                                             o.x(part ? "right" : "left", {3, 504}), targets.data(), part * 504);
                     k.cross_entropy_combine(stream, o.out_f32("losses of parts", {3}), lse, stats, targets.data());
                     k.cross_entropy_gradient(stream, o.inout("left", {3, 504}), lse, {}, targets.data(), 0, 0.5f);
                     k.cross_entropy_gradient(stream, o.inout("right", {3, 504}), lse, o.f32("factors", {3}),
                                              targets.data(), 504, 0.5f);
                   }});
  cases.push_back(
      {"rope_and_heads",
       [](const Kernels& k, Stream& stream, Operands& o) {
         const std::vector<int32_t> positions = {5, 0, 6};
         const Tensor cos = o.f32("cos", {7, 16}), sin = o.f32("sin", {7, 16});
         k.rope(stream, std::array{RopeArgs{o.inout("x", {3, 2, 40}), cos, sin, positions.data()},
                                   RopeArgs{o.inout("k", {2, 1, 32}), cos, sin, positions.data() + 1}});
         k.join_heads(stream, o.out("y", {3, 5, 24}), o.x("shared", {3, 8}), o.x("own", {3, 5, 16}));
         k.split_heads(stream, o.out("dshared", {3, 8}), o.out("down", {3, 5, 16}), o.x("dy", {3, 5, 24}));
         for (const int64_t first : {0, 5, 16}) {
           k.take_heads(stream, o.out("by head", {5, 3, 8}), o.x("by token", {3, 5, 24}), first);
           k.put_heads(stream, o.inout("whole", {3, 5, 24}), o.x("part", {5, 3, 8}), first);
         }
       },
       1e-5, false});
  cases.push_back({"place_rows", [](const Kernels& k, Stream& stream, Operands& o) {
                     const std::vector<int32_t> rows = {7, 0, 5};
                     const auto of = [&](const std::string& name, DType pool, int64_t dim) {
                       return PlaceRowsArgs{o.recorded(name, o.of(pool, name, {2, 4, 2, dim})),
                                            o.x("x of " + name, {3, 2, dim}), rows.data()};
                     };
                     for (const int64_t dim : {8, 3, 400})
                       for (const DType pool : {DType::f32, DType::bf16, DType::f16})
                         k.place_rows(stream, std::array{of("keys", pool, 2 * dim), of("values", pool, dim)});
                   }});
  cases.push_back({"combine_rows", [](const Kernels& k, Stream& stream, Operands& o) {
                     const std::vector<int32_t> at = {3, -1, 0, 4, -1, -1, 1, 2};
                     for (const int64_t cols : {8, 5, 600}) {
                       const Tensor x = o.x("x", {6, cols}), weights = o.f32("weights", {4, 2});
                       k.combine_rows(stream, o.out("y", {4, cols}), x, {at.data(), 2}, weights);
                       k.combine_rows(stream, o.out("sums", {4, cols}), x, {at.data(), 2}, {});
                       k.combine_rows_backward(stream, o.inout("dx", {6, cols}), o.out_f32("dweights", {4, 2}),
                                               o.x("dy", {4, cols}), x, {at.data(), 2}, weights);
                       k.combine_rows_backward(stream, o.inout("dx alone", {6, cols}), {}, o.x("dy", {4, cols}), {},
                                               {at.data(), 2}, weights);
                       k.combine_rows_backward(stream, {}, o.out_f32("dweights alone", {4, 2}), o.x("dy", {4, cols}),
                                               x, {at.data(), 2}, weights);
                     }
                   }});
  cases.push_back(
      {"sum_of_squares", [](const Kernels& k, Stream& stream, Operands& o) {
         for (const int64_t count : {0, 7, 5003})
           o.result("sum", k.sum_of_squares(stream, std::vector{o.x("x", {count}), o.f32("y", {count / 2})}));
       }});
  return cases;
}

std::vector<ParityCase> optimizer_cases() {
  std::vector<ParityCase> cases;
  for (const bool has_value : {false, true}) {
    const auto step = [=](auto kernel, const Kernels& k, Stream& stream, Operands& o, auto args, int64_t n) {
      const Tensor value = has_value && o.type() != DType::f32 ? o.out("value", {n}) : Tensor();
      on_masters(k, stream, o.inout_f32("master", {n}), value, [&](const Tensor& master, const Tensor& beside) {
        args.master = master, args.value = beside;
        kernel(stream, args);
      });
    };
    const auto add = [&](std::string name, auto run) { cases.push_back({name + (has_value ? "_value" : ""), run}); };
    add("sgd", [=](const Kernels& k, Stream& stream, Operands& o) {
      for (const bool nesterov : {false, true})
        for (const bool has_momentum : {false, true}) {
          SgdArgs args{.master = {}, .value = {}, .grad = o.f32("grad", {517})};
          if (has_momentum) args.m = o.inout_f32("m", {517});
          args.grad_scale = 0.7f, args.lr = 0.1f, args.momentum = 0.9f, args.weight_decay = 0.2f;
          args.nesterov = nesterov;
          step(k.sgd, k, stream, o, args, 517);
        }
    });
    add("lion", [=](const Kernels& k, Stream& stream, Operands& o) {
      LionArgs args{.master = {}, .value = {}, .m = o.inout_f32("m", {517})};
      args.grad = o.f32("grad", {517}), args.grad_scale = 0.7f, args.lr = 0.1f, args.weight_decay = 0.2f;
      args.softness = 0.3f;
      step(k.lion, k, stream, o, args, 517);
    });
    add("adafactor", [=](const Kernels& k, Stream& stream, Operands& o) {
      // Pieces of 40 x 33: inside of a row, over ends of rows, and many whole rows.
      for (const auto& [first, count] :
           {std::pair(40, 7), std::pair(50, 60), std::pair(10, 1200), std::pair(0, 1320)}) {
        const auto piece = [&](const Tensor& rows, const Tensor& cols) {
          return MatrixPiece{o.f32("x", {count}), 0.7f, first, rows, cols};
        };
        k.add_factor_sums(stream, piece(o.inout_f32("rows", {40}), o.inout_f32("cols", {33})));
        const MatrixPiece p = piece(o.f32("row factors", {40}), o.f32("col factors", {33}));
        o.result("squares", k.factored_squares(stream, p));
        AdafactorArgs args{.master = {}, .value = {}, .grad = p};
        args.lr = 0.1f, args.factor = 0.5f, args.weight_decay = 0.2f;
        step(k.adafactor, k, stream, o, args, count);
      }
      for (const bool is_normalised : {false, true})
        k.factor_moment(stream, {.moment = o.recorded("moment", o.positive_f32("moment", {1100})),
                                 .sums = o.recorded("sums", o.positive_f32("sums", {1100})),
                                 .count = 7,
                                 .beta = 0.8f,
                                 .eps = 0.1f,
                                 .is_normalised = is_normalised});
    });
  }
  return cases;
}

const std::vector<ParityCase>& all_cases() {
  static const std::vector<ParityCase> cases = [] {
    std::vector<ParityCase> all = make_cases();
    for (ParityCase& c : optimizer_cases()) all.push_back(std::move(c));
    // Vectors of those that run with tensors at odd addresses elsewhere.
    for (const char* name : {"add", "accumulate", "scale", "convert", "fill", "softcap", "softcap_backward", "adamw",
                             "attention_merge", "dropout_10percent", "activation_silu", "activation_backward_gelu",
                             "gated_activation_gelu_tanh", "gated_activation_backward_silu"})
      all.push_back(parity_case(name));
    return all;
  }();
  return cases;
}

class CudaRowsTest : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(All, CudaRowsTest, testing::Range(size_t(0), all_cases().size()),
                         [](const auto& test) { return all_cases()[test.param].name; });

TEST_P(CudaRowsTest, EqualsReferenceAtWholeAndOddAddresses) {
  const ParityCase& c = all_cases()[GetParam()];
  Workbench bench(1, Device::cuda);
  for (const int64_t guard : {Operands::kWholeGuard, Operands::kOddGuard})
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(fmt::format("{}, guards of {}", name_of(type), guard));
      expect_parity(c, cuda_kernels(), bench, type, guard);
    }
}

}  // namespace
}  // namespace weft
