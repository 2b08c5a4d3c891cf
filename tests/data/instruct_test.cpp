// Instruction data: shapes of examples, what of them is learned, and rows that hold several.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "data/ignore_progress.h"
#include "data/temp_folder.h"
#include "support/test_data.h"
#include "weft/base/json.h"
#include "weft/data/chat_format.h"
#include "weft/data/dataset.h"
#include "weft/data/packed_rows.h"

namespace weft {
namespace {

// "user:hi|assistant!:hello", where ! marks what is learned.
std::string shown(const InstructExample& example) {
  std::string text = example.is_plain ? "plain " : "";
  for (const ChatMessage& m : example.messages)
    text += fmt::format("{}{}{}:{}", text.empty() || text == "plain " ? "" : "|", m.role, m.is_answer ? "!" : "",
                        m.content);
  return text;
}

struct ShapeCase {
  const char* name;
  const char* json;
  const char* want;
};
class ShapeTest : public testing::TestWithParam<ShapeCase> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, ShapeTest,
    testing::Values(
        ShapeCase{"messages", R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]})",
                  "user:hi|assistant!:yo"},
        ShapeCase{"parts",
                  R"({"messages":[{"role":"user","content":[{"type":"text","value":"a"},{"type":"text","text":"b"}]},
                     {"role":"assistant","content":"x","loss_weight":0.0},{"role":"assistant","content":"y"}]})",
                  "user:ab|assistant:x|assistant!:y"},
        ShapeCase{"share",
                  R"({"system":"s","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"yo"}]})",
                  "system:s|user:hi|assistant!:yo"},
        ShapeCase{"alpaca", R"({"instruction":"add","input":"1 2","output":"3","history":[["q","a"]]})",
                  "user:q|assistant!:a|user:add\n1 2|assistant!:3"},
        ShapeCase{"no_input", R"({"instruction":"add","input":"","output":"3"})", "user:add|assistant!:3"},
        ShapeCase{"completion", R"({"prompt":"1+1=","completion":"2"})", "plain user:1+1=|assistant!:2"}),
    [](const auto& test) { return test.param.name; });

TEST_P(ShapeTest, IsRead) {
  const nlohmann::json json = parse_json(GetParam().json, "test");
  EXPECT_EQ(shown(parse_example(json, InstructFormat::automatic, "test")), GetParam().want);
}

TEST(InstructTest, WhatIsNoExampleIsRefusedByName) {
  for (const auto& [text, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"([1])", "must be an object"},
           {R"({"text":"x"})", "it has none of"},
           {R"({"instruction":"x"})", "\"output\" is missing"},
           {R"({"messages":[{"role":"user","content":"hi"}]})", "no answer"},
           {R"({"messages":[{"role":"wizard","content":"hi"}]})", "\"wizard\" is unknown"},
           {R"({"messages":[{"role":"user","content":[{"type":"image","url":"u"}]}]})", "no text"},
           {R"({"messages":7})", "must be a list"}}) {
    const nlohmann::json json = parse_json(text, "test");
    try {
      parse_example(json, InstructFormat::automatic, "f.jsonl, line 3");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
      EXPECT_TRUE(std::string(e.what()).starts_with("f.jsonl, line 3: ")) << e.what();
    }
  }
}

std::string parts_of(const ChatFormat& chat, const InstructExample& example) {
  std::string text;
  for (const ChatPart& p : chat.render(example)) text += p.is_answer ? "{" + p.text + "}" : p.text;
  return text;
}

const InstructExample kTwoTurns{{{"user", "a"}, {"assistant", "b", true}, {"user", "c"}, {"assistant", "d", true}},
                                false};

TEST(ChatFormatTest, FindsAnswersWithAndWithoutMarks) {
  const std::string prefixes =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}{% if add_generation_prompt "
      "%}<assistant>{% endif %}";
  EXPECT_EQ(parts_of({prefixes, "t", "", ""}, kTwoTurns),
            "<user>a<end><assistant>{b<end>}<user>c<end><assistant>{d<end>}");
  const std::string marks =
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}{{ eos_token }}"
      "{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(parts_of({marks, "t", "", "#"}, kTwoTurns), "U:aA:{b#}U:cA:{d#}");
  EXPECT_EQ(parts_of({"", "", "", ""}, kTwoTurns),
            "### User:\na\n\n### Assistant:\n{b}\n\n### User:\nc\n\n### Assistant:\n{d}");
  InstructExample second = kTwoTurns;
  second.messages[1].is_answer = false;
  EXPECT_EQ(parts_of({marks, "t", "", "#"}, second), "U:aA:b#U:cA:{d#}");
  EXPECT_EQ(parts_of({prefixes, "t", "", ""}, second),
            "<user>a<end><assistant>b<end><user>c<end><assistant>{d<end>}");
  // A template that rewrites earlier turns gives no prefixes.
  const ChatFormat counts("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}", "t", "", "");
  EXPECT_THROW(counts.render(kTwoTurns), Error);
}

class PackedTest : public testing::Test {
 protected:
  TokenPart open(const std::string& path, double valid_fraction = 0) {
    dataset_ = open_dataset(
        FileSystem::real(),
        {.train = path, .valid_fraction = valid_fraction, .tokenizer = "byte", .cache_dir = folder_.path("cache")},
        ignore_progress);
    return dataset_.train;
  }
  TempFolder folder_;
  Dataset dataset_;
};

TEST_F(PackedTest, LearnsAnswersAlone) {
  const std::string path = folder_.write(
      "x.jsonl", "{\"prompt\":\"ab\",\"completion\":\"cd\"}\r\n\n{\"prompt\":\"e\",\"completion\":\"f\"}");
  const TokenPart part = open(path);
  ASSERT_TRUE(part.file->has_examples());
  const int32_t end = *dataset_.tokenizer->end_of_document();
  const PackedBatches batches(part, {.seq_len = 8, .global_batch = 1, .seed = 1});
  Batch batch;
  batches.fill(0, 0, 1, batch);
  EXPECT_EQ(batch.num_targets, 5);
  EXPECT_EQ(batches.num_targets(0), 5);
  // "ab" "cd" end, of which the last is only predicted; "e" "f" end; two tokens of padding. In some order.
  const bool is_first = batch.ids[0] == 'a';
  const std::vector<int32_t> one{-1, 'c', 'd', end}, other{'f', end};
  std::vector<int32_t> want = is_first ? one : other;
  want.insert(want.end(), is_first ? other.begin() : one.begin(), is_first ? other.end() : one.end());
  want.resize(8, -1);
  EXPECT_EQ(batch.targets, want);
  EXPECT_EQ(batch.sequence_starts, (std::vector<int32_t>{0, is_first ? 4 : 2, 6, 8}));
}

TEST_F(PackedTest, EveryExampleIsInOneRowOfAnEpoch) {
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += fmt::format("{{\"prompt\":\"{}\",\"completion\":\"{:0{}}\"}}\n", char('A' + i % 26), i, 2 + i % 9);
  lines += fmt::format("{{\"prompt\":\"{}\",\"completion\":\"no\"}}\n", std::string(40, 'x'));
  lines += fmt::format("{{\"prompt\":\"x\",\"completion\":\"{}\"}}\n", std::string(40, 'y'));
  const TokenPart part = open(folder_.write("x.jsonl", lines));
  const BatchOptions options{.seq_len = 24, .global_batch = 1, .seed = 7};
  const PackedBatches batches(part, options);
  const PackedRows::Summary& s = batches.summary();
  EXPECT_EQ(s.examples, 51);
  EXPECT_EQ(s.cut, 1);
  EXPECT_EQ(s.left_out, 1);
  EXPECT_GT(s.filled, 0.88);  // examples of 3 to 12 tokens in rows of 24
  int64_t learned = 0;
  Batch batch;
  for (int64_t step = 0; step < s.rows; ++step) {
    batches.fill(step, 0, 1, batch);
    int64_t here = 0;
    for (const int32_t t : batch.targets) here += t >= 0;
    EXPECT_EQ(here, batch.num_targets);
    EXPECT_EQ(here, batches.num_targets(step));
    learned += here;
    EXPECT_EQ(batch.sequence_starts.front(), 0);
    EXPECT_EQ(batch.sequence_starts.back(), 24);
    for (size_t i = 0; i + 1 < batch.sequence_starts.size(); ++i) {
      ASSERT_LT(batch.sequence_starts[i], batch.sequence_starts[i + 1]);
      EXPECT_EQ(batch.positions[size_t(batch.sequence_starts[i])], 0);
    }
  }
  int64_t want = 24;  // of the one that is cut: all but its question are targets
  for (int i = 0; i < 50; ++i) want += std::max(2 + i % 9, i < 10 ? 1 : 2) + 1;
  EXPECT_EQ(learned, want);
  // Any rows, in any order, of the same seed.
  const PackedBatches again(part, options);
  Batch other;
  again.fill(3, 0, 1, other);
  batches.fill(3, 0, 1, batch);
  EXPECT_EQ(batch.ids, other.ids);
  EXPECT_EQ(batch.targets, other.targets);
}

TEST_F(PackedTest, AnExampleIsForTrainingOrForValidation) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"prompt\":\"abc\",\"completion\":\"defg\"}\n";
  open(folder_.write("x.jsonl", lines), 0.3);
  const std::span<const uint64_t> starts = dataset_.train.file->document_starts();
  EXPECT_TRUE(std::set(starts.begin(), starts.end()).contains(uint64_t(dataset_.train.end)));
  EXPECT_EQ(dataset_.valid.begin, dataset_.train.end);
  EXPECT_EQ(dataset_.valid.end, dataset_.valid.file->num_tokens());
}

TEST_F(PackedTest, ABadLineIsNamed) {
  const std::string good = "{\"prompt\":\"a\",\"completion\":\"b\"}\n";
  for (const char* bad : {"{\"prompt\":\"a\"}\n", "{\"prompt\":\n", "7\n"}) {
    try {
      open(folder_.write("bad.jsonl", good + "\n" + bad + good));
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("bad.jsonl, line 3"), std::string::npos) << e.what();
    }
  }
}

TEST_F(PackedTest, TextStaysTextWhereTheFormatSaysSo) {
  const std::string path = folder_.write("x.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n");
  const Dataset text = open_dataset(
      FileSystem::real(), {.train = path, .valid_fraction = 0, .cache_dir = folder_.path("cache"), .format = "text"},
      ignore_progress);
  EXPECT_FALSE(text.train.file->has_examples());
  EXPECT_EQ(text.train.size(), int64_t(std::filesystem::file_size(path)));
}

struct RealCase {
  const char* file;
  int64_t examples;
};
class RealInstructTest : public testing::TestWithParam<RealCase> {};
INSTANTIATE_TEST_SUITE_P(Files, RealInstructTest,
                         testing::Values(RealCase{"alpaca_en_demo.json", 999}, RealCase{"v1_sft_demo.jsonl", 0}),
                         [](const auto& test) { return std::string(test.param.file).substr(0, 6); });

TEST_P(RealInstructTest, IsReadCompletely) {
  const std::string path = test_data(std::string("instruct/") + GetParam().file);
  if (path.empty()) GTEST_SKIP() << no_test_data("instruct");
  const TempFolder folder;
  const Dataset data = open_dataset(
      FileSystem::real(), {.train = path, .valid_fraction = 0, .tokenizer = "byte", .cache_dir = folder.path()},
      ignore_progress);
  const PackedRows rows(data.train, 1 << 15, 1);
  EXPECT_EQ(rows.summary().cut, 0);
  EXPECT_EQ(rows.summary().examples, int64_t(data.train.file->document_starts().size()));
  EXPECT_GT(rows.summary().examples, 100);
  if (GetParam().examples > 0) {
    EXPECT_EQ(rows.summary().examples, GetParam().examples);
  }
}

}  // namespace
}  // namespace weft
