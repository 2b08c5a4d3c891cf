// BERT and its kind, T5, ViT and CLIP give what Hugging Face's library gives, from its own files.
#include "weft/pretrained/encoders/encoders.h"

#include <set>

#include "pretrained/golden_models.h"
#include "pretrained/model_on_ranks.h"
#include "support/message_of.h"
#include "support/rank.h"
#include "support/test_data.h"

namespace weft {
namespace {

// What a model computes of the golden inputs, by the names of the golden results; empty tensors where the rank has
// none.
using Results = std::map<std::string, Tensor>;

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

// By the heads that a model has.
Results results_of_bert(Context& context, Bert& bert, const GoldenModel& golden) {
  TextRows text = bert.no_texts();
  text.add(golden.ids(), golden.number_or("second_text", 0));
  const Var hidden = bert.hidden(context, text);
  Results results{{"logits", bert.config().labels > 0 ? bert.scores(hidden, text) : bert.logits(hidden)}};
  if (golden.has("hidden")) results["hidden"] = hidden.value;
  return results;
}

class BertTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, BertTest,
                         testing::Values("bert", "roberta", "mpnet", "distilbert", "modernbert", "nomic_bert",
                                         "bert_scores", "roberta_scores", "distilbert_scores", "modernbert_scores",
                                         "nomic_bert_scores"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(BertTest, ReadsAText) {
  const GoldenModel golden(GetParam(), "golden_encoders");
  EXPECT_EQ(encoder_kind(golden.path()), EncoderKind::bert);
  in_both([&](Context& context, DType dtype, double tolerance) {
    const auto bert = open_bert(context, golden.path(), {dtype});
    for (const auto& [name, result] : results_of_bert(context, *bert, golden))
      EXPECT_LT(worst_difference(rows_of(result), golden.rows(name.c_str())), tolerance) << name;
  });
}

// Beside others as by itself.
TEST_P(BertTest, ReadsTextsApart) {
  const GoldenModel golden(GetParam(), "golden_encoders");
  TestRank rank(reference_kernels());
  const auto bert = open_bert(rank.context, golden.path(), {DType::f64});
  const std::vector<int32_t> texts[] = {{7}, {3, 3, 12, 4}, {9, 0, 2, 2, 5, 6}};
  TextRows together = bert->no_texts();
  for (const auto& text : texts) together.add(text, int64_t(text.size()) / 2);
  const Var hidden = bert->hidden(rank.context, together);
  const Logits all = rows_of(hidden.value);
  size_t row = 0;
  for (size_t i = 0; i < std::size(texts); ++i) {
    TextRows one = bert->no_texts();
    one.add(texts[i], int64_t(texts[i].size()) / 2);
    const Var alone = bert->hidden(rank.context, one);
    for (const auto& wanted : rows_of(alone.value)) EXPECT_LT(worst_difference({all[row++]}, {wanted}), 1e-12);
    if (bert->config().labels == 0) continue;
    EXPECT_LT(worst_difference({rows_of(bert->scores(hidden, together))[i]}, rows_of(bert->scores(alone, one))),
              1e-12);
  }
  EXPECT_EQ(row, all.size());
}

TEST(EncodersTest, BertHasTheHeadsItWasSavedWith) {
  TestRank rank(cpu_kernels());
  const auto writes = open_bert(rank.context, GoldenModel("bert", "golden_encoders").path());
  const auto scores = open_bert(rank.context, GoldenModel("bert_scores", "golden_encoders").path());
  TextRows text = writes->no_texts();
  text.add(std::vector<int32_t>{1, 2});
  const Var hidden = writes->hidden(rank.context, text);
  EXPECT_THROW(writes->scores(hidden, text), UsageError);
  EXPECT_THROW(scores->logits(hidden), UsageError);
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

struct WrongConfig {
  const char *model, *key, *value;
};

class WrongBertConfigTest : public testing::TestWithParam<WrongConfig> {};
INSTANTIATE_TEST_SUITE_P(
    Keys, WrongBertConfigTest,
    testing::Values(
        WrongConfig{"modernbert", "rope_scaling", R"({"rope_type": "yarn", "factor": 4})"},
        WrongConfig{"modernbert", "rope_parameters", R"({"rope_type": "default", "rope_theta": 10})"},
        WrongConfig{"modernbert", "layer_types", R"(["full_attention"])"},
        WrongConfig{"modernbert", "local_attention", "1"},
        WrongConfig{"modernbert", "global_attn_every_n_layers", "0"}, WrongConfig{"modernbert", "norm_bias", "true"},
        WrongConfig{"modernbert", "classifier_pooling", R"("max")"},
        WrongConfig{"modernbert", "tie_word_embeddings", "false"},
        WrongConfig{"nomic_bert", "rope_parameters", R"({"rope_type": "linear", "factor": 2, "rope_theta": 10})"},
        WrongConfig{"nomic_bert_scores", "rotary_scaling_factor", "2"},
        WrongConfig{"nomic_bert_scores", "rotary_emb_fraction", "0.5"},
        WrongConfig{"nomic_bert_scores", "num_experts", "8"}, WrongConfig{"nomic_bert_scores", "prenorm", "true"}),
    [](const auto& test) { return fmt::format("{}_{}", test.param.model, test.param.key); });

TEST_P(WrongBertConfigTest, IsRefusedByKey) {
  const auto& [model, key, value] = GetParam();
  const GoldenModel golden(model, "golden_encoders");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(golden.path() + "/config.json"));
  config[key] = nlohmann::json::parse(value);
  std::ofstream(golden.path() + "/config.json") << config;
  TestRank rank(cpu_kernels());
  const std::string said = message_of([&] { open_bert(rank.context, golden.path()); });
  EXPECT_NE(said.find(key), std::string::npos) << said;
  EXPECT_NE(said.find("config.json"), std::string::npos) << said;
}

// A text is no longer than those that the model was trained with.
TEST(EncodersTest, NomicBertReadsWhatItWasTrainedWith) {
  const GoldenModel golden("nomic_bert_scores", "golden_encoders");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(golden.path() + "/config.json"));
  config["max_trained_positions"] = 9;
  std::ofstream(golden.path() + "/config.json") << config;
  TestRank rank(cpu_kernels());
  EXPECT_EQ(open_bert(rank.context, golden.path())->config().context(), 9);
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

Results results_of(Context& context, const GoldenModel& golden, const EncoderUse& use,
                   FunctionRef<void(Param&)> each_param) {
  switch (*encoder_kind(golden.path())) {
    case EncoderKind::bert: {
      const auto bert = open_bert(context, golden.path(), use);
      bert->each_param(each_param);
      return results_of_bert(context, *bert, golden);
    }
    case EncoderKind::t5: {
      const auto t5 = open_t5(context, golden.path(), use);
      t5->each_param(each_param);
      const Var memory = t5->encode(context, golden.list<int32_t>("encoder_ids"));
      return {{"logits", t5->logits(context, golden.ids(), memory)}};
    }
    case EncoderKind::vit: {
      const auto vit = open_vit(context, golden.path(), use);
      vit->each_param(each_param);
      return {{"logits", vit->logits(context, golden.list<float>("pixels"))}};
    }
    case EncoderKind::clip: break;
  }
  const auto clip = open_clip(context, golden.path(), use);
  clip->each_param(each_param);
  Results results{{"text", clip->embed_text(context, golden.ids())}};
  results["image"] = clip->embed_image(context, golden.list<float>("pixels"));
  return results;
}

struct CutCase {
  const char* model;
  MeshShape mesh;
};

// Layers cut over ranks and stages give what one rank gives; 3 ranks have 4 heads to share, and stages not always as
// many layers as each other.
class CutEncodersTest : public testing::TestWithParam<CutCase> {};

std::vector<CutCase> cut_cases() {
  std::vector<CutCase> all;
  for (const char* model : {"bert", "roberta_scores", "mpnet", "distilbert", "modernbert", "modernbert_scores",
                            "nomic_bert", "vit", "clip", "t5", "flan_t5"}) {
    for (const int tp : {2, 3, 4}) all.push_back({model, {.tp = tp}});
    for (const int tp : {1, 2}) all.push_back({model, {.pp = 2, .tp = tp}});
    all.push_back({model, {.pp = 2, .shard = 2}});
  }
  for (const char* model : {"t5", "flan_t5"})
    for (const int pp : {3, 4, 5}) all.push_back({model, {.pp = pp}});  // it has 2 + 3 layers
  all.push_back({"t5", {.pp = 3, .tp = 2}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Meshes, CutEncodersTest, testing::ValuesIn(cut_cases()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.model, name_of_mesh(test.param.mesh));
});

TEST_P(CutEncodersTest, SayTheSame) {
  const GoldenModel golden(GetParam().model, "golden_encoders");
  const MeshShape& shape = GetParam().mesh;
  run_ranks(shape.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, shape);
    bool is_cut = false;
    const Results results = results_of(rank.context, golden, {DType::f32, &mesh}, [&](const Param& p) {
      is_cut = is_cut || p.shape.numel() < p.placement.whole.numel();
    });
    EXPECT_EQ(is_cut, shape.tp > 1);
    for (const auto& [name, result] : results) {
      const bool is_last = mesh.place().pp + 1 == shape.pp;
      ASSERT_EQ(bool(result), is_last);
      if (is_last) EXPECT_LT(worst_difference(rows_of(result), golden.rows(name.c_str())), kSingle) << name;
    }
  });
}

// A stage has memory for its own weights alone; together stages have all, and each layer once.
TEST_P(CutEncodersTest, StagesHoldTheirOwnWeights) {
  const GoldenModel golden(GetParam().model, "golden_encoders");
  std::set<std::string> all;
  TestRank one(cpu_kernels());
  results_of(one.context, golden, {}, [&](const Param& p) { all.insert(p.name); });
  std::mutex mutex;
  std::map<std::string, std::set<int>> stages_of;
  run_ranks(GetParam().mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, GetParam().mesh);
    TestRank as_large(cpu_kernels());
    std::vector<Tensor> own;
    int64_t live = -1;
    results_of(rank.context, golden, {DType::f32, &mesh}, [&](const Param& p) {
      if (live < 0) live = rank.allocator.stats().live_bytes;
      own.push_back(as_large.context.empty(DType::f32, p.shape));
      const std::lock_guard lock(mutex);
      stages_of[p.name].insert(mesh.place().pp);
    });
    EXPECT_EQ(live, as_large.allocator.stats().live_bytes);
  });
  std::set<std::string> held;
  for (const auto& [name, stages] : stages_of) {
    held.insert(name);
    if (name.find("layers.") != std::string::npos) EXPECT_EQ(stages.size(), 1u) << name;
  }
  EXPECT_EQ(held, all);
}

TEST_P(CutEncodersTest, T5WritesInPieces) {
  const GoldenModel golden(GetParam().model, "golden_encoders");
  if (encoder_kind(golden.path()) != EncoderKind::t5) return;
  run_ranks(GetParam().mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, GetParam().mesh);
    const auto t5 = open_t5(rank.context, golden.path(), {DType::f32, &mesh});
    const Var memory = t5->encode(rank.context, golden.list<int32_t>("encoder_ids"));
    T5::Writing writing(*t5, rank.context, memory, int64_t(golden.ids().size()));
    Logits got;
    for (const int32_t id : golden.ids())
      if (const Tensor row = writing.logits({&id, 1})) got.push_back(rows_of(row).front());
    ASSERT_EQ(got.empty(), mesh.place().pp + 1 != GetParam().mesh.pp);
    if (!got.empty()) EXPECT_LT(worst_difference(got, golden.logits()), kSingle);
  });
}

struct EncoderRefusal {
  const char* name;
  const char* model;
  MeshShape mesh;
  const char* says;
};
class EncoderRefusalTest : public testing::TestWithParam<EncoderRefusal> {};
const EncoderRefusal kRefusals[] = {
    {"heads", "bert", {.tp = 5}, "4 attention heads"},
    {"layers", "bert", {.pp = 3}, "2 layers"},
    {"layers_of_images", "vit", {.pp = 3}, "2 layers"},
    {"layers_of_a_tower", "clip", {.pp = 3}, "2 layers"},
    {"layers_of_both_stacks", "t5", {.pp = 6}, "5 layers"},
    {"experts", "flan_t5", {.shard = 2, .ep = 2}, "no experts"},
    {"tokens", "vit", {.cp = 2}, "cp=2"},
};
INSTANTIATE_TEST_SUITE_P(Meshes, EncoderRefusalTest, testing::ValuesIn(kRefusals),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(EncoderRefusalTest, SaysWhatTheModelHas) {
  const GoldenModel golden(GetParam().model, "golden_encoders");
  run_ranks(GetParam().mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const Mesh mesh(world, GetParam().mesh);
    try {
      results_of(rank.context, golden, {DType::f32, &mesh}, [](const Param&) {});
      ADD_FAILURE();
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(GetParam().says), std::string::npos) << e.what();
    }
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
