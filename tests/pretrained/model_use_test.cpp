// What a model's makers say of its use goes with it through checkpoints, folders and GGUF files.
#include "weft/pretrained/model_use.h"

#include <filesystem>

#include "pretrained/chatty_model.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/export_gguf.h"
#include "weft/text/byte_tokenizer.h"

namespace weft {
namespace {

nlohmann::json json_of(const std::string& path) { return parse_json(read_file(path, uint64_t(1) << 20), path); }

class ModelUseTest : public testing::Test {
 protected:
  void SetUp() override { make_chatty(golden_.path()); }
  void expect_use(const ModelSource& copy) const {
    ModelUse got = use_of(copy), want = use_of(*source_);
    got.chat_template.source = want.chat_template.source;  // where it lies now
    EXPECT_EQ(got.chat_template, want.chat_template) << copy.path();
    EXPECT_EQ(got.ids, want.ids) << copy.path();
    EXPECT_EQ(got.sampling, want.sampling) << copy.path();
    EXPECT_EQ(stop_tokens(copy, *copy.tokenizer()), (std::vector<int32_t>{6, 7}));
  }

  const GoldenModel golden_{"llama"};
  std::unique_ptr<ModelSource> source_;
  TemporaryFolder folder_;
};

TEST_F(ModelUseTest, GoesThroughACheckpointAndBack) {
  source_ = open_model(golden_.path());
  EXPECT_EQ(use_of(*source_).ids, (SpecialIds{.begin = 0, .pad = 5, .ends = {6, 7}}));
  export_checkpoint(*source_, folder_ / "checkpoints");
  const auto checkpoint = open_model(folder_ / "checkpoints");
  expect_use(*checkpoint);
  export_hugging_face(*checkpoint, folder_ / "back");
  expect_use(*open_model(folder_ / "back"));
  // Of keys that are not there the library would take what the class says.
  const nlohmann::json config = json_of(folder_ / "back/config.json");
  EXPECT_EQ(config["bos_token_id"], 0);
  EXPECT_EQ(config["eos_token_id"], nlohmann::json({6, 7}));
  EXPECT_EQ(config["pad_token_id"], 5);
  export_checkpoint(*open_model(folder_ / "back"), folder_ / "again");
  expect_use(*open_model(folder_ / "again"));
  export_gguf(*checkpoint, folder_ / "m.gguf");
  const ModelUse told = use_of(*open_model(folder_ / "m.gguf"));
  EXPECT_EQ(told.chat_template.text, use_of(*source_).chat_template.text);
  EXPECT_EQ(told.ids.pad, 5);
  EXPECT_EQ(told.sampling, source_->sampling_defaults());
}

TEST_F(ModelUseTest, HasATemplateForTools) {
  std::filesystem::remove(golden_.path() + "/chat_template.jinja");
  std::ofstream(golden_.path() + "/tokenizer_config.json")
      << R"({"unk_token": "<tool>", "chat_template": [{"name": "default", "template": "a"},
                                                      {"name": "tool_use", "template": "b"}]})";
  source_ = open_model(golden_.path());
  export_checkpoint(*source_, folder_ / "checkpoints");
  const auto chat = open_model(folder_ / "checkpoints")->chat_template();
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->text, "a");
  EXPECT_EQ(chat->with_tools, "b");
  EXPECT_EQ(chat->tokens, source_->chat_template()->tokens);
}

// A model without special tokens says so, where its class would name tokens that it has not.
TEST_F(ModelUseTest, IdsThatNobodyNamesAreNull) {
  const GoldenModel plain("gpt2");
  const auto source = open_model(plain.path());
  export_checkpoint(*source, folder_ / "checkpoints");
  const auto checkpoint = open_model(folder_ / "checkpoints");
  EXPECT_EQ(use_of(*checkpoint), ModelUse());
  EXPECT_FALSE(std::filesystem::exists(checkpoint->path() + "/generation_config.json"));
  export_hugging_face(*checkpoint, folder_ / "back");
  const nlohmann::json config = json_of(folder_ / "back/config.json");
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    EXPECT_TRUE(config.contains(key) && config[key].is_null()) << key;
}

// As weft wrote them until now.
TEST_F(ModelUseTest, CheckpointsWithoutItAreRead) {
  source_ = open_model(golden_.path());
  export_checkpoint(*source_, folder_ / "new");
  const Checkpoint whole = Checkpoint::open(find_checkpoint(folder_ / "new"));
  CheckpointStore store(folder_ / "old");
  CheckpointWriter writer = store.begin(0);
  for (const std::string_view name : {kModelName, kTokenizerName, kStateName})
    writer.add_file(std::string(name), whole.read(name));
  std::vector<SafetensorsInfo> infos;
  for (const std::string& name : whole.names(kModelGroup))
    infos.push_back({name, DType::f32, whole.find(kModelGroup, name)->shape});
  writer.add_tensors("model.safetensors", infos, [&](CheckpointTensorFile& out) {
    for (const SafetensorsInfo& info : infos) out.write(whole.find(kModelGroup, info.name)->bytes);
  });
  writer.commit();
  const auto old = open_model(folder_ / "old");
  EXPECT_EQ(use_of(*old), ModelUse());
  EXPECT_EQ(stop_tokens(*old, *old->tokenizer()), std::vector<int32_t>{6});
  export_hugging_face(*old, folder_ / "back");
  EXPECT_EQ(json_of(folder_ / "back/config.json")["eos_token_id"], 6);
}

TEST_F(ModelUseTest, OfTrainingIsThatOfTheModelUnlessItsTokensAreOthers) {
  source_ = open_model(golden_.path());
  const ChatTemplate::Text chat = source_->chat_template().value();
  const ModelUse same = use_after_training(source_.get(), *source_->tokenizer(), chat);
  EXPECT_EQ(same, use_of(*source_));
  const ModelUse other = use_after_training(source_.get(), ByteTokenizer(), chat);
  EXPECT_EQ(other.ids, SpecialIds());
  EXPECT_TRUE(other.chat_template.tokens.empty());
  EXPECT_EQ(other.chat_template.text, chat.text);
  EXPECT_EQ(other.sampling, same.sampling);
  const ModelUse none = use_after_training(nullptr, ByteTokenizer(), {.text = "x", .source = "file"});
  EXPECT_EQ(none, (ModelUse{.chat_template = {.text = "x", .source = "file"}}));
}

TEST_F(ModelUseTest, IdsBeyondTheVocabularyAreNone) {
  std::ofstream(golden_.path() + "/generation_config.json") << R"({"bos_token_id": 50256, "pad_token_id": -1})";
  EXPECT_EQ(open_model(golden_.path())->special_ids(), SpecialIds());
}

}  // namespace
}  // namespace weft
