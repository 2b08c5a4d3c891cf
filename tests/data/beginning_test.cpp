// Where a text begins: examples and prompts have in front what generation puts there, and nothing else.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/ignore_progress.h"
#include "data/temp_folder.h"
#include "weft/data/dataset.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kAdding = R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
                                R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],)"
                                R"("special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}})";

// Names <s> as its bos_token, and puts it before texts or not, as its post-processor says.
std::shared_ptr<const Tokenizer> tokenizer_with(const std::string& post_processor) {
  const std::string file = fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{{"id":0,"content":"<s>","special":true}},)"
      R"({{"id":1,"content":"</s>","special":true}}],"normalizer":null,"pre_tokenizer":null,"post_processor":{},)"
      R"("decoder":null,"model":{{"type":"BPE","vocab":{{"a":2,"b":3,"c":4,"d":5}},"merges":[]}}}})",
      post_processor);
  const nlohmann::json json{{"type", "huggingface"},
                            {"version", 1},
                            {"begin_of_document", "<s>"},
                            {"end_of_document", "</s>"},
                            {"file", file}};
  return parse_tokenizer(json.dump(), "test");
}

class BeginningTest : public testing::TestWithParam<const char*> {
 protected:
  Dataset open(const std::string& lines, ExampleKind kind, const std::string& format = "auto") const {
    return open_dataset(FileSystem::real(),
                        {.train = folder_.write(format == "text" ? "x.txt" : "x.jsonl", lines),
                         .valid_fraction = 0,
                         .cache_dir = folder_.path("cache"),
                         .opened = tokenizer_,
                         .format = format,
                         .kind = kind},
                        ignore_progress);
  }
  static Ids tokens_of(const Dataset& data) {
    Ids ids(size_t(data.train.size()));
    std::vector<uint8_t> is_learned(ids.size());
    if (data.train.file->has_examples())
      data.train.file->read(0, ids, is_learned);
    else
      data.train.file->read(0, ids);
    return ids;
  }
  // As weft generate and /v1/completions begin, with an answer's tokens behind.
  Ids as_generated(std::string_view prompt, Ids answer) const {
    Ids ids = tokenizer_->encode(prompt, {.add_special = true});
    ids.insert(ids.end(), answer.begin(), answer.end());
    return ids;
  }

  TempFolder folder_;
  const std::shared_ptr<const Tokenizer> tokenizer_ = tokenizer_with(GetParam());
};
INSTANTIATE_TEST_SUITE_P(PostProcessors, BeginningTest, testing::Values("null", kAdding), [](const auto& test) {
  return std::string(test.index == 0 ? "addsNothing" : "addsItsBeginning");
});

TEST_P(BeginningTest, IsThatOfGeneration) {
  ASSERT_EQ(tokenizer_->begin_of_document(), 0);
  const size_t added = std::string_view(GetParam()) == kAdding ? 1 : 0;
  EXPECT_EQ(tokenizer_->before_text().size(), added);
  EXPECT_EQ(as_generated("ab", {}).size(), 2 + added);
  EXPECT_EQ(tokens_of(open("{\"prompt\":\"ab\",\"completion\":\"cd\"}", ExampleKind::answers)),
            as_generated("ab", {4, 5, 1}));
  EXPECT_EQ(open("{\"prompt\":\"ab\",\"answer\":\"cd\"}", ExampleKind::prompts).prompts.at(0).ids,
            as_generated("ab", {}));
  Ids pair = as_generated("a", {3, 1}), rejected = as_generated("a", {4, 1});
  pair.insert(pair.end(), rejected.begin(), rejected.end());
  EXPECT_EQ(tokens_of(open("{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}", ExampleKind::pairs)), pair);
}

// Documents are one text behind the other, and no beginning was ever put between them.
TEST_P(BeginningTest, OfPlainTextIsNone) {
  EXPECT_EQ(tokens_of(open("abcd", ExampleKind::answers, "text")), (Ids{2, 3, 4, 5}));
}

}  // namespace
}  // namespace weft
