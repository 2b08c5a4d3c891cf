// Adapters by request: each row has its own, answers are those of the adapted model, in any company and on any mesh;
// they come and go while the engine serves.
#include "base/temporary_folder.h"
#include "pretrained/model_on_ranks.h"
#include "serve/company.h"
#include "serve/test_server.h"
#include "weft/base/philox.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

constexpr int64_t kRank = 3;

ModelConfig adapted_config(ModelConfig m) {
  m.lora = {.rank = kRank, .alpha = 6, .targets = lora_targets({"all-linear"})};
  complete(m);
  return m;
}

// Values of a factor, which depend on the adapter's name, the layer's and the place in the whole.
void fill_factor(Context& context, Param& factor, const std::string& adapter) {
  const Tensor wide = context.empty(DType::f32, {factor.shape.numel()});
  factor.placement.each_run(0, factor.shape.numel(), [&](int64_t local, int64_t global, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      wide.data<float>()[local + i] =
          float(philox_normal(name_hash(adapter), name_hash(factor.name), uint64_t(global + i))) / 4;
  });
  context.kernels.convert(context.stream, factor.value.slice_flat(0, {factor.shape.numel()}), wide);
  factor.value_changed();
}

const Fill kBase = [](ForwardModel& m) { m.part().initialize(m.context(), 11); };
Fill adapted_by(const std::string& adapter) {
  return [adapter](ForwardModel& m) {
    kBase(m);
    for (Param* p : m.part().params())
      if (is_adapter(p->name)) fill_factor(m.context(), *p, adapter);
  };
}

// "Folders" are names; that of "broken" cannot be read.
AdapterLoader loader_of(ForwardModel& model) {
  return [&model](const std::string& folder) {
    if (folder == "broken") throw Error("broken: no adapter");
    if (folder == "broken on one rank" && model.is_driver()) throw Error("broken here");
    auto set = std::make_unique<LoraSet>();
    const float scale = adapted_config(small_config()).lora.scale();
    for (const Param* p : model.part().params()) {
      if (!p->name.starts_with("layers.") || p->shape.rank() < 2 || p->name.ends_with("_conv.weight")) continue;
      LoraSet::Factors& f = set->add(*p, p->name.substr(0, p->name.rfind('.')), kRank, scale);
      for (Param* factor : {&f.a, &f.b}) {
        factor->value = model.context().empty(model.dtype(), factor->shape);
        fill_factor(model.context(), *factor, folder);
      }
    }
    return set;
  };
}

void with_adapters_on(const ModelConfig& config, const MeshShape& mesh, ContinuousOptions options,
                      const std::function<void(ContinuousEngine&)>& clients, DType dtype = DType::f32) {
  options.adapters = {{"a", "a"}, {"b", "b"}};
  on_ranks(config, mesh, cpu_kernels(), dtype, kBase, [&](ForwardModel& model) {
    ContinuousOptions own = options;
    own.load_adapter = loader_of(model);
    with_engine(model, own, clients);
  });
}

// Of the company, every request with the next of these adapters.
std::vector<Request> mixed(size_t count, const std::vector<std::string>& adapters = {"", "a", "b"}) {
  std::vector<Request> requests = company(count);
  for (size_t i = 0; i < count; ++i) requests[i].adapter = adapters[i % adapters.size()];
  return requests;
}

class AdapterMeshTest : public testing::TestWithParam<OnMesh> {};

TEST_P(AdapterMeshTest, MixedBatchesGiveTheBitsOfEachAlone) {
  const auto& [name, config, mesh, dtype] = GetParam();
  std::vector<ServedAnswer> want;
  with_adapters_on(
      config, mesh, {.kv_blocks = kCompanyContext, .max_running = 1, .keeps_prefixes = false},
      [&](ContinuousEngine& engine) { want = answers_of(engine, mixed(24), 1); }, dtype);
  with_adapters_on(
      config, mesh, {.kv_blocks = 24, .block_tokens = 4, .tokens_per_step = 20, .max_draft_tokens = 2},
      [&](ContinuousEngine& engine) {
        EXPECT_EQ(answers_of(engine, mixed(24)), want);
        EXPECT_GT(engine.stats().cached_tokens_total, 0);
      },
      dtype);
}

TEST_P(AdapterMeshTest, EachAnswersAsTheAdaptedModel) {
  const auto& [name, config, mesh, dtype] = GetParam();
  for (const std::string adapter : {"a", "b"}) {
    std::vector<ServedAnswer> want, got, plain;
    const ContinuousOptions options{.kv_blocks = kCompanyContext, .block_tokens = 4};
    on_ranks(adapted_config(config), mesh, cpu_kernels(), dtype, adapted_by(adapter), [&](ForwardModel& model) {
      with_engine(model, options, [&](Engine& engine) { want = answers_of(engine, company(12)); });
    });
    with_adapters_on(
        config, mesh, options,
        [&](ContinuousEngine& engine) {
          got = answers_of(engine, mixed(12, {adapter}));
          plain = answers_of(engine, company(12));
        },
        dtype);
    EXPECT_EQ(got, want) << adapter;
    EXPECT_NE(plain, want) << adapter;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, AdapterMeshTest,
    testing::Values(OnMesh{"one", small_config(), {}}, OnMesh{"tp2", small_config(), {.tp = 2}},
                    OnMesh{"pp2", small_config(), {.pp = 2}}, OnMesh{"pp2tp2", small_config(), {.pp = 2, .tp = 2}},
                    OnMesh{"gpt2", small_config("gpt2"), {}}, OnMesh{"bf16", small_config(), {}, DType::bf16},
                    OnMesh{"delta", state_config(), {}}, OnMesh{"delta_tp2", state_config(), {.tp = 2}},
                    OnMesh{"delta_bf16", state_config(), {}, DType::bf16}, OnMesh{"experts", expert_config(), {}},
                    OnMesh{"experts_tp2", expert_config(), {.tp = 2}},
                    OnMesh{"shared_gate_tp2", shared_gate_config(), {.tp = 2}},
                    OnMesh{"experts_cp2", expert_config(), {.cp = 2}},
                    OnMesh{"experts_ep2", expert_config(), {.shard = 2, .ep = 2}}),
    [](const auto& test) { return test.param.name; });

// The greedy answer and how many tokens of its prompt were found.
std::pair<std::vector<int32_t>, int64_t> ask_adapter(Engine& engine, const std::string& adapter, int64_t tokens = 8) {
  Request request = greedy({5, 7, 11, 2, 30, 8, 9, 1, 1, 2}, tokens);
  request.adapter = adapter;
  const Heard heard = ask(engine, std::move(request)).get();
  EXPECT_EQ(heard.finish.reason, FinishReason::length) << heard.finish.error;
  return {heard.tokens, heard.finish.usage.cached_tokens};
}
std::string load(Engine& engine, const std::string& name, const std::string& folder) {
  std::promise<std::string> told;
  engine.load_adapter(name, folder, [&](const std::string& error) { told.set_value(error); });
  return told.get_future().get();
}

TEST(AdaptersTest, FindNoPrefixesOfOthers) {
  with_adapters_on(small_config(), {}, {.kv_blocks = 64, .block_tokens = 4}, [](Engine& engine) {
    for (const char* adapter : {"", "a", "b"}) {
      EXPECT_EQ(ask_adapter(engine, adapter).second, 0) << adapter;
      EXPECT_EQ(ask_adapter(engine, adapter).second, 8) << adapter;
    }
  });
}

TEST(AdaptersTest, AreNoMoreThanTheServerHolds) {
  with_adapters_on(small_config(), {}, {.kv_blocks = 64, .most_adapters = 3}, [](Engine& engine) {
    EXPECT_EQ(load(engine, "c", "a"), "");
    EXPECT_THROW(load(engine, "d", "a"), UsageError);
    EXPECT_TRUE(engine.unload_adapter("c"));
    ask_adapter(engine, "a");  // it is gone after a step
    EXPECT_EQ(load(engine, "d", "a"), "");
  });
}

class AdaptersOnMeshTest : public testing::TestWithParam<MeshShape> {};

TEST_P(AdaptersOnMeshTest, ComeAndGoWhileTheEngineServes) {
  with_adapters_on(small_config(), GetParam(), {.kv_blocks = 64, .block_tokens = 4}, [](ContinuousEngine& engine) {
    const std::vector<int32_t> a = ask_adapter(engine, "a").first, b = ask_adapter(engine, "b").first;
    ASSERT_NE(a, b);
    EXPECT_EQ(load(engine, "c", "broken"), "broken: no adapter");
    EXPECT_EQ(load(engine, "c", "broken on one rank"), "broken here");
    EXPECT_THROW(ask_adapter(engine, "c"), UsageError);
    EXPECT_EQ(load(engine, "c", "a"), "");
    EXPECT_EQ(engine.adapters(), (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_THROW(load(engine, "c", "b"), UsageError);
    EXPECT_EQ(ask_adapter(engine, "c").first, a);
    EXPECT_TRUE(engine.unload_adapter("c"));
    EXPECT_FALSE(engine.unload_adapter("c"));
    EXPECT_THROW(ask_adapter(engine, "c"), UsageError);
    EXPECT_EQ(load(engine, "c", "b"), "");
    const auto [again, found] = ask_adapter(engine, "c");  // nothing of the one that was called so
    EXPECT_EQ(again, b);
    EXPECT_EQ(found, 0);
  });
}

TEST_P(AdaptersOnMeshTest, ThoseThatAreUnloadedFinishTheirRequests) {
  with_adapters_on(small_config(), GetParam(), {.kv_blocks = 64}, [](ContinuousEngine& engine) {
    const std::vector<int32_t> want = ask_adapter(engine, "a", 40).first;
    Request request = greedy({5, 7, 11, 2, 30, 8, 9, 1, 1, 2}, 40);
    request.adapter = "a";
    std::promise<void> is_running;
    size_t count = 0;
    std::future<Heard> heard = ask(engine, std::move(request), [&] {
      if (++count == 3) is_running.set_value();
    });
    is_running.get_future().wait();
    EXPECT_TRUE(engine.unload_adapter("a"));
    EXPECT_EQ(load(engine, "a", "b"), "");
    EXPECT_EQ(heard.get().tokens, want);
    EXPECT_EQ(ask_adapter(engine, "a").first, ask_adapter(engine, "b").first);
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, AdaptersOnMeshTest,
                         testing::Values(MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}),
                         [](const auto& test) { return name_of_mesh(test.param); });

class AdapterRoutesTest : public testing::Test {
 protected:
  AdapterRoutesTest() {
    for (const char* name : {"chat", "code"}) {
      make_folders(FileSystem::real(), folder_ / name);
      write_file_atomically(FileSystem::real(), folder_ / name + "/adapter_config.json", "{}");
    }
    make_folders(FileSystem::real(), folder_ / "no-adapter");
  }
  std::vector<std::string> models() {
    std::vector<std::string> names;
    const auto models = nlohmann::json::parse(server_.connect().request("GET", "/v1/models", "").body);
    for (const auto& model : models["data"]) names.push_back(model["id"]);
    return names;
  }
  TemporaryFolder folder_;
  TestServer server_{{.adapter_folder = folder_.path()}};
};

TEST_F(AdapterRoutesTest, LoadAndUnloadByName) {
  EXPECT_EQ(server_.post("/v1/load_lora_adapter", {{"lora_name", "chat"}}).status, 200);
  EXPECT_EQ(server_.post("/v1/load_lora_adapter", {{"lora_name", "c"}, {"lora_path", "code"}}).status, 200);
  EXPECT_EQ(server_.engine.adapter_folder("c"), folder_ / "code");
  EXPECT_EQ(models(), (std::vector<std::string>{"test-model", "an-adapter", "chat", "c"}));
  server_.ask("/v1/completions", {{"model", "c"}, {"prompt", "x"}});
  EXPECT_EQ(server_.engine.last_request().adapter, "c");
  EXPECT_EQ(server_.post("/v1/load_lora_adapter", {{"lora_name", "chat"}}).status, 400);
  EXPECT_EQ(server_.post("/v1/load_lora_adapter", {{"lora_name", "test-model"}, {"lora_path", "chat"}}).status, 400);
  EXPECT_EQ(server_.post("/v1/unload_lora_adapter", {{"lora_name", "chat"}}).status, 200);
  EXPECT_EQ(server_.post("/v1/unload_lora_adapter", {{"lora_name", "chat"}}).status, 404);
  const bench::HttpResult gone = server_.post("/v1/completions", {{"model", "chat"}, {"prompt", "x"}});
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(nlohmann::json::parse(gone.body)["error"]["code"], "model_not_found");
}

TEST_F(AdapterRoutesTest, NoRequestNamesAFile) {
  const std::string outside = folder_ / "no-adapter/../chat";
  for (const std::string& path :
       {std::string("no-adapter"), std::string("../x"), std::string("chat/"), std::string("./chat"), std::string("."),
        std::string(".."), std::string(""), outside, folder_ / "chat"}) {
    const bench::HttpResult result = server_.post("/v1/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", path}});
    EXPECT_EQ(result.status, 404) << path << ": " << result.body;
  }
  EXPECT_EQ(models(), (std::vector<std::string>{"test-model", "an-adapter"}));
}

TEST_F(AdapterRoutesTest, AnErrorNamesWhatWasSent) {
  for (const auto& [body, param] : std::initializer_list<std::pair<nlohmann::json, std::string>>{
           {{{"lora_name", "nosuch"}}, "lora_name"},
           {{{"lora_name", "nosuch"}, {"lora_path", "neither"}}, "lora_path"}}) {
    const auto error = nlohmann::json::parse(server_.post("/v1/load_lora_adapter", body).body)["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_NE(error["message"].get<std::string>().find(param + " is the name"), std::string::npos) << error;
  }
}

TEST(AdapterRoutesOfFixedServerTest, RefuseToLoad) {
  TestServer server;
  for (const char* route : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
    EXPECT_EQ(server.post(route, {{"lora_name", "an-adapter"}}).status, 403);
}

}  // namespace
}  // namespace weft
