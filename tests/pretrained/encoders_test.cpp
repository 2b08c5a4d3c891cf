// BERT, T5, ViT and CLIP give what Hugging Face's library gives, from its own files.
#include "weft/pretrained/encoders/encoders.h"

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "support/rank.h"
#include "support/test_data.h"

namespace weft {
namespace {

constexpr double kExact = 1e-5, kSingle = 3e-5;

Logits rows_of(const Tensor& t) {
  Logits rows(size_t(t.dim(0)), std::vector<double>(size_t(t.dim(1))));
  for (int64_t i = 0; i < t.numel(); ++i)
    rows[size_t(i / t.dim(1))][size_t(i % t.dim(1))] =
        t.dtype() == DType::f64 ? t.data<double>()[i] : double(t.data<float>()[i]);
  return rows;
}

// Runs body(context, dtype, tolerance) in float64 by the reference kernels and in fp32 by the fast ones.
void in_both(auto&& body) {
  for (const bool is_exact : {true, false}) {
    TestRank rank(is_exact ? reference_kernels() : cpu_kernels());
    body(rank.context, is_exact ? DType::f64 : DType::f32, is_exact ? kExact : kSingle);
  }
}

TEST(EncodersTest, BertScoresMaskedTokens) {
  const GoldenModel golden("bert", "golden_encoders");
  EXPECT_EQ(encoder_kind(golden.path()), EncoderKind::bert);
  in_both([&](Context& context, DType dtype, double tolerance) {
    const auto bert = open_bert(context, golden.path(), {dtype});
    EXPECT_LT(worst_difference(rows_of(bert->logits(context, golden.ids())), golden.logits()), tolerance);
  });
}

class T5Test : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, T5Test, testing::Values("t5", "flan_t5"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(T5Test, WritesWhatItRead) {
  const GoldenModel golden(GetParam(), "golden_encoders");
  EXPECT_EQ(encoder_kind(golden.path()), EncoderKind::t5);
  in_both([&](Context& context, DType dtype, double tolerance) {
    const auto t5 = open_t5(context, golden.path(), {dtype});
    const Var memory = t5->encode(context, golden.list<int32_t>("encoder_ids"));
    EXPECT_LT(worst_difference(rows_of(t5->logits(context, golden.ids(), memory)), golden.logits()), tolerance);
    // Again in pieces, as texts are written.
    T5::Writing writing(*t5, context, memory, int64_t(golden.ids().size()));
    Logits got;
    const std::vector<int32_t> ids = golden.ids();
    for (size_t at = 0, n = 1; at < ids.size(); at += n, n = n % 3 + 1) {
      n = std::min(n, ids.size() - at);
      for (const auto& row : rows_of(writing.logits(std::span(ids).subspan(at, n)))) got.push_back(row);
    }
    EXPECT_LT(worst_difference(got, golden.logits()), tolerance);
  });
}

TEST(EncodersTest, VitScoresClasses) {
  const GoldenModel golden("vit", "golden_encoders");
  EXPECT_EQ(encoder_kind(golden.path()), EncoderKind::vit);
  in_both([&](Context& context, DType dtype, double tolerance) {
    const auto vit = open_vit(context, golden.path(), {dtype});
    EXPECT_LT(worst_difference(rows_of(vit->logits(context, golden.list<float>("pixels"))), golden.logits()),
              tolerance);
  });
}

TEST(EncodersTest, ClipEmbedsTextsAndImages) {
  const GoldenModel golden("clip", "golden_encoders");
  EXPECT_EQ(encoder_kind(golden.path()), EncoderKind::clip);
  in_both([&](Context& context, DType dtype, double tolerance) {
    const auto clip = open_clip(context, golden.path(), {dtype});
    EXPECT_LT(worst_difference(rows_of(clip->embed_text(context, golden.ids())), golden.rows("text")), tolerance);
    const std::vector<float> pixels = golden.list<float>("pixels");
    EXPECT_LT(worst_difference(rows_of(clip->embed_image(context, pixels)), golden.rows("image")), tolerance);
    const std::vector<int32_t> endless{3, 5};
    EXPECT_THROW(clip->embed_text(context, endless), UsageError);
  });
}

TEST(EncodersTest, NameWhatIsMissing) {
  const GoldenModel golden("vit", "golden_encoders");
  TestRank rank(cpu_kernels());
  std::ofstream(golden.path() + "/config.json") << R"({"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 3,
    "num_attention_heads": 4, "intermediate_size": 20, "image_size": 12, "patch_size": 4})";
  try {
    open_vit(rank.context, golden.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layers.2"), std::string::npos) << e.what();
  }
}

// Layers cut over ranks give on each of them what one rank gives; 3 ranks have 4 heads to share.
class CutEncodersTest : public testing::TestWithParam<int> {
 protected:
  // Runs body(context, use) on every rank, one after the other where it compares.
  static void on_ranks(auto&& body) {
    run_ranks(GetParam(), [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      body(rank.context, EncoderUse{DType::f32, {.tensor = TensorParallel(world, false)}});
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CutEncodersTest, testing::Values(2, 3, 4),
                         [](const auto& test) { return fmt::format("tp{}", test.param); });

TEST_P(CutEncodersTest, SayTheSame) {
  const GoldenModel bert_files("bert", "golden_encoders"), vit_files("vit", "golden_encoders"),
      clip_files("clip", "golden_encoders");
  on_ranks([&](Context& context, const EncoderUse& use) {
    const auto bert = open_bert(context, bert_files.path(), use);
    int num_cut = 0;
    bert->each_param([&](const Param& p) { num_cut += p.shape.numel() < p.placement.whole.numel(); });
    EXPECT_GT(num_cut, 0);
    EXPECT_LT(worst_difference(rows_of(bert->logits(context, bert_files.ids())), bert_files.logits()), kSingle);
    const auto vit = open_vit(context, vit_files.path(), use);
    const Tensor classes = vit->logits(context, vit_files.list<float>("pixels"));
    EXPECT_LT(worst_difference(rows_of(classes), vit_files.logits()), kSingle);
    const auto clip = open_clip(context, clip_files.path(), use);
    const Tensor image = clip->embed_image(context, clip_files.list<float>("pixels"));
    EXPECT_LT(worst_difference(rows_of(clip->embed_text(context, clip_files.ids())), clip_files.rows("text")),
              kSingle);
    EXPECT_LT(worst_difference(rows_of(image), clip_files.rows("image")), kSingle);
  });
}

TEST_P(CutEncodersTest, T5WritesTheSame) {
  for (const char* name : {"t5", "flan_t5"}) {
    const GoldenModel golden(name, "golden_encoders");
    on_ranks([&](Context& context, const EncoderUse& use) {
      const auto t5 = open_t5(context, golden.path(), use);
      const Var memory = t5->encode(context, golden.list<int32_t>("encoder_ids"));
      EXPECT_LT(worst_difference(rows_of(t5->logits(context, golden.ids(), memory)), golden.logits()), kSingle);
    });
  }
}

TEST(CutEncodersRefusalTest, NamesTheHeads) {
  const GoldenModel golden("bert", "golden_encoders");
  run_ranks(5, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    EXPECT_THROW(open_bert(rank.context, golden.path(), {DType::f32, {.tensor = TensorParallel(world, false)}}),
                 UsageError);
  });
}

// A checkpoint that others saved.
class TinyEncoder {
 public:
  explicit TinyEncoder(const std::string& model) {
    const auto copy = [&](const char* end, const char* to) {
      std::filesystem::copy_file(test_data("models/" + model + end), folder_ / to);
    };
    copy(".safetensors", "model.safetensors"), copy("_config.json", "config.json");
    results = nlohmann::json::parse(std::ifstream(test_data("models/" + model + "_logits.json")));
  }
  const std::string& path() const { return folder_.path(); }
  nlohmann::json results;

 private:
  TemporaryFolder folder_;
};

TEST(TinyEncodersTest, FlanT5GivesItsLogits) {
  if (test_data("models/tiny_flan_t5.safetensors").empty()) GTEST_SKIP() << no_test_data("tiny_flan_t5");
  const TinyEncoder tiny("tiny_flan_t5");
  TestRank rank(cpu_kernels());
  const auto t5 = open_t5(rank.context, tiny.path());
  for (size_t i = 0; i < tiny.results["logits"].size(); ++i) {
    const auto read = tiny.results["enc_sequences"][i].get<std::vector<int32_t>>();
    const auto written = tiny.results["dec_sequences"][i].get<std::vector<int32_t>>();
    const Var memory = t5->encode(rank.context, read);
    EXPECT_LT(worst_difference(rows_of(memory.value), tiny.results["enc_hidden"][i].get<Logits>()), 1e-5);
    EXPECT_LT(
        worst_difference(rows_of(t5->logits(rank.context, written, memory)), tiny.results["logits"][i].get<Logits>()),
        1e-5);
  }
}

TEST(TinyEncodersTest, VitGivesItsLogits) {
  if (test_data("models/tiny_vit.safetensors").empty()) GTEST_SKIP() << no_test_data("tiny_vit");
  const TinyEncoder tiny("tiny_vit");
  TestRank rank(cpu_kernels());
  const auto vit = open_vit(rank.context, tiny.path());
  std::vector<float> pixels;
  for (const auto& channel : tiny.results["pixels"])
    for (const auto& row : channel)
      for (const auto& pixel : row) pixels.push_back(pixel.get<float>());
  EXPECT_LT(worst_difference(rows_of(vit->logits(rank.context, pixels)), tiny.results["logits"].get<Logits>()), 1e-5);
}

}  // namespace
}  // namespace weft
