// Prompts: shapes of examples, and the tokens that a served model would see.
#include "weft/data/prompts.h"

#include <gtest/gtest.h>

#include "data/ignore_progress.h"
#include "data/temp_folder.h"
#include "weft/base/error.h"
#include "weft/data/dataset.h"
#include "weft/text/byte_tokenizer.h"

namespace weft {
namespace {

std::string decoded(const Prompt& prompt) { return ByteTokenizer().decode(prompt.ids); }

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% endif %}";

std::vector<Prompt> prompts_of(const std::string& lines, const std::string& chat_template = "") {
  const TempFolder folder;
  write_file_atomically(FileSystem::real(), folder / "p.jsonl", std::string_view(lines));
  const Dataset data = open_dataset(FileSystem::real(),
                                    {.train = folder / "p.jsonl",
                                     .valid_fraction = 0,
                                     .cache_dir = folder / "cache",
                                     .chat_template = chat_template,
                                     .kind = ExampleKind::prompts},
                                    ignore_progress);
  EXPECT_EQ(data.train.size(), 0);
  return data.prompts;
}

TEST(PromptsTest, AreReadAsTheyAreServed) {
  const std::string lines =
      "{\"prompt\": \"2+2=\", \"answer\": 4, \"level\": \"easy\"}\n"
      "{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"hi\"}]}\n"
      "{\"question\": \"why?\", \"solution\": \"so\"}\n";
  const std::vector<Prompt> plain = prompts_of(lines), chat = prompts_of(lines, kTemplate);
  ASSERT_EQ(plain.size(), 3);
  EXPECT_EQ(decoded(plain[0]), "2+2=");
  EXPECT_EQ(plain[0].answer, "4");
  EXPECT_EQ(plain[0].example, R"({"answer":4,"level":"easy","prompt":"2+2="})");
  EXPECT_EQ(decoded(plain[1]), "### System:\ns\n\n### User:\nhi\n\n### Assistant:\n");
  EXPECT_EQ(plain[1].answer, "");
  EXPECT_EQ(decoded(plain[2]), "### User:\nwhy?\n\n### Assistant:\n");
  EXPECT_EQ(plain[2].answer, "so");
  EXPECT_EQ(decoded(chat[0]), "2+2=");
  EXPECT_EQ(decoded(chat[1]), "<system>s\n<user>hi\n<assistant>");
  EXPECT_EQ(decoded(chat[2]), "<user>why?\n<assistant>");
}

TEST(PromptsTest, WhatIsNoPromptIsRefusedByItsLine) {
  for (const auto& [line, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{\"text\": \"x\"}", "neither \"prompt\" nor \"question\""},
           {"{\"prompt\": 3}", "a text or a list of messages"},
           {"{\"prompt\": []}", "a text or a list of messages"},
           {"{\"prompt\": \"\"}", "the prompt is empty"},
           {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
            "ends with an answer"},
           {"{\"prompt\": \"x\", \"answer\": [1]}", "\"answer\" must be a text or a number"},
           {"[]", "must be an object"}}) {
    try {
      prompts_of(std::string("{\"prompt\": \"fine\"}\n") + line + "\n");
      ADD_FAILURE() << line;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("p.jsonl, line 2"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(prompts_of("\n"), UsageError);
}

}  // namespace
}  // namespace weft
