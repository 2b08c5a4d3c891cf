// tokenizer.json files: what one option changes, and what is refused by name.
#include <gtest/gtest.h>

#include "weft/text/readers/hf_tokenizer.h"

namespace weft {
namespace {

// A file whose parts can be replaced one by one.
struct File {
  std::string added = R"([{"id":9,"content":"<x>","special":true}])", normalizer = "null", pre_tokenizer = "null",
              post_processor = "null", decoder = "null",
              model =
                  R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"▁":5},"merges":["a b",["ab","c"]]})",
              rest;

  std::string text() const {
    return fmt::format(
        R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":{},"pre_tokenizer":{},)"
        R"("post_processor":{},"decoder":{},"model":{}{}}})",
        added, normalizer, pre_tokenizer, post_processor, decoder, model, rest);
  }
  std::unique_ptr<Tokenizer> read(const HfHints& hints = {}) const {
    return read_hf_tokenizer(text(), "t.json", hints);
  }
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {.parse_special = true}) const {
    return read()->encode(text, options);
  }
};
using Ids = std::vector<int32_t>;

TEST(TokenizerJson, MergesInOrder) {
  EXPECT_EQ(File().encode("abcabac"), (Ids{4, 3, 0, 2}));
  EXPECT_EQ(File().encode("xaxb"), (Ids{3}))
      << "characters outside the vocabulary vanish, and what is beside them merges";
  EXPECT_EQ(File().read()->vocab_size(), 10);
  EXPECT_EQ(File().read()->name(), "bpe");
}

TEST(TokenizerJson, TellsUnknownCharacters) {
  File file;
  file.model = R"({"type":"BPE","unk_token":"c","vocab":{"a":0,"b":1,"c":2},"merges":[]})";
  EXPECT_EQ(file.encode("axxb"), (Ids{0, 2, 2, 1}));
  file.model = R"({"type":"BPE","unk_token":"c","fuse_unk":true,"vocab":{"a":0,"b":1,"c":2},"merges":[]})";
  EXPECT_EQ(file.encode("axxb"), (Ids{0, 2, 1}));
  file.model = R"({"type":"Unigram","unk_id":null,"vocab":[["a",-1.0]]})";
  try {
    file.encode("aéa");
    ADD_FAILURE();
  } catch (const EncodeError& error) {
    EXPECT_NE(std::string(error.what()).find("U+00E9 'é'"), std::string::npos) << error.what();
  }
}

TEST(TokenizerJson, KeepsWholePieces) {
  File file;
  file.model = R"({"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ba":2},"merges":[]})";
  EXPECT_EQ(file.encode("ba"), (Ids{2}));
  EXPECT_EQ(file.encode("bab"), (Ids{1, 0, 1}));
}

TEST(TokenizerJson, MarksSubwords) {
  File file;
  file.model = R"({"type":"BPE","continuing_subword_prefix":"##","end_of_word_suffix":"$",)"
               R"("vocab":{"a":0,"##b":1,"##c$":2,"ab":3,"abc$":4,"a$":5},"merges":["a ##b","ab ##c$"]})";
  EXPECT_EQ(file.encode("abc"), (Ids{4}));
  EXPECT_EQ(file.encode("a"), (Ids{5}));
}

TEST(TokenizerJson, FindsAddedTokens) {
  File file;
  EXPECT_EQ(file.encode("a<x>b"), (Ids{0, 9, 1}));
  EXPECT_EQ(file.encode("a<x>b", {}), (Ids{3})) << "text is data unless the caller says otherwise";
  file.added = R"([{"id":9,"content":"<x>"},{"id":8,"content":"<x><x>"}])";
  EXPECT_EQ(file.encode("<x><x><x>", {}), (Ids{8, 9})) << "tokens that are not special always are tokens";
  file.added = R"([{"id":9,"content":"x","single_word":true}])";
  EXPECT_EQ(file.encode("x ax x"), (Ids{9, 0, 9}));
  file.added = R"([{"id":9,"content":"x","lstrip":true}])";
  EXPECT_EQ(file.encode("▁ x ▁"), (Ids{5, 9, 5}));
  file.added = R"([{"id":2,"content":"X","normalized":true,"special":true}])";
  file.normalizer = R"({"type":"Lowercase"})";
  EXPECT_EQ(file.encode("AxB"), (Ids{0, 2, 1}));
}

TEST(TokenizerJson, PutsTokensAround) {
  const EncodeOptions special{.add_special = true};
  File file;
  EXPECT_EQ(file.encode("a", special), (Ids{0}));
  file.post_processor = R"({"type":"BertProcessing","sep":["<x>",9],"cls":["c",2]})";
  EXPECT_EQ(file.encode("a", special), (Ids{2, 0, 9}));
  EXPECT_EQ(file.encode("", special), (Ids{2, 9}));
  file.post_processor = R"({"type":"Sequence","processors":[{"type":"ByteLevel","trim_offsets":true},)"
                        R"({"type":"RobertaProcessing","sep":["b",1],"cls":["c",2],"trim_offsets":true},)"
                        R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}},)"
                        R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],)"
                        R"("special_tokens":{"<x>":{"id":"<x>","ids":[9,9],"tokens":["<x>","<x>"]}}}]})";
  EXPECT_EQ(file.encode("a", special), (Ids{9, 9, 2, 0, 1}));
}

TEST(TokenizerJson, PutsTokensAroundPairs) {
  const auto text_of = [](const std::optional<PairSurroundings>& p) {
    if (!p) return std::string("none");
    return fmt::format("{} A {} B {}{}", fmt::join(p->before, ","), fmt::join(p->between, ","),
                       fmt::join(p->after, ","), p->tells_apart ? " apart" : "");
  };
  const auto around = [&](const std::string& processor) {
    File file;
    file.post_processor = processor;
    return text_of(file.read()->around_pair());
  };
  EXPECT_EQ(text_of(File().read()->around_pair()), "none");
  EXPECT_EQ(around(R"({"type":"BertProcessing","sep":["<x>",9],"cls":["c",2]})"), "2 A 9 B 9 apart");
  const std::string roberta = R"({"type":"RobertaProcessing","sep":["b",1],"cls":["c",2]})";
  EXPECT_EQ(around(roberta), "2 A 1,1 B 1");
  EXPECT_EQ(around(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + roberta + "]}"), "2 A 1,1 B 1");
  EXPECT_EQ(around(R"({"type":"Sequence","processors":[)" + roberta + "," + roberta + "]}"), "none");
  const auto templated = [&](const std::string& pair) {
    return around(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":)" + pair +
                  R"(,"special_tokens":{"<x>":{"id":"<x>","ids":[9],"tokens":["<x>"]},)"
                  R"("b":{"id":"b","ids":[1],"tokens":["b"]}}})");
  };
  const auto special = [](const char* id, int kind) {
    return fmt::format(R"({{"SpecialToken":{{"id":"{}","type_id":{}}}}})", id, kind);
  };
  const auto text = [](const char* id, int kind) {
    return fmt::format(R"({{"Sequence":{{"id":"{}","type_id":{}}}}})", id, kind);
  };
  const auto list = [](const std::vector<std::string>& items) { return fmt::format("[{}]", fmt::join(items, ",")); };
  EXPECT_EQ(templated(list({special("<x>", 0), text("A", 0), special("b", 0), text("B", 1), special("b", 1)})),
            "9 A 1 B 1 apart");
  EXPECT_EQ(templated(list({text("A", 0), special("b", 0), special("b", 0), text("B", 0), special("<x>", 0)})),
            " A 1,1 B 9");
  EXPECT_EQ(templated(list({text("B", 0), text("A", 1)})), "none");
  EXPECT_EQ(templated(list({text("A", 0)})), "none");
  EXPECT_EQ(templated(list({text("A", 0), text("B", 2)})), "none");
  EXPECT_EQ(templated(list({text("A", 0), special("b", 1), text("B", 1)})), "none");
  EXPECT_EQ(templated("[]"), "none");
}

TEST(TokenizerJson, KnowsWhereDocumentsEnd) {
  File file;
  EXPECT_EQ(file.read()->end_of_document(), 9) << "there is no other control token";
  file.added = R"([{"id":9,"content":"<x>","special":true},{"id":8,"content":"<y>","special":true}])";
  EXPECT_EQ(file.read()->end_of_document(), std::nullopt);
  file.post_processor = R"({"type":"BertProcessing","sep":["<x>",9],"cls":["<y>",8]})";
  EXPECT_EQ(file.read()->begin_of_document(), 8);
  EXPECT_EQ(file.read()->end_of_document(), 9);
  HfHints hints;
  read_hf_hints(R"({"bos_token":{"content":"<x>"},"eos_token":"<y>"})", "config", hints);
  EXPECT_EQ(file.read(hints)->begin_of_document(), 9);
  EXPECT_EQ(file.read(hints)->end_of_document(), 8);
  EXPECT_EQ(parse_tokenizer(file.read(hints)->to_json(), "checkpoint")->end_of_document(), 8);
  hints.end_of_document = "<z>";
  EXPECT_THROW(file.read(hints), Error);
}

// Each part doubles the text; forty of them would ask for terabytes.
TEST(TokenizerJson, LimitsHowFarTextsGrow) {
  const auto forty = [](std::string_view type, std::string_view list, std::string_view part) {
    std::vector<std::string_view> parts(40, part);
    return fmt::format(R"({{"type":"{}","{}":[{}]}})", type, list, fmt::join(parts, ","));
  };
  const auto expect_limit = [](auto&& use) {
    try {
      use();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("by what the tokenizer replaces in it"), std::string::npos)
          << error.what();
    }
  };
  File file;
  file.normalizer = forty("Sequence", "normalizers", R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})");
  expect_limit([&] { file.encode("a"); });
  file.normalizer = forty("Sequence", "normalizers", R"({"type":"Replace","pattern":{"Regex":"a"},"content":"aa"})");
  expect_limit([&] { file.encode("a"); });
  file.normalizer =
      fmt::format(R"({{"type":"Replace","pattern":{{"String":"a"}},"content":"{}"}})", std::string(70'000, 'b'));
  expect_limit([&] { file.encode("a"); });
  file.normalizer = "null";
  file.pre_tokenizer = forty("Sequence", "pretokenizers",
                             R"({"type":"Metaspace","replacement":"  ","prepend_scheme":"never","split":false})");
  expect_limit([&] { file.encode("a b"); });
  file.pre_tokenizer = "null";
  file.decoder = forty("Sequence", "decoders", R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})");
  expect_limit([&] { file.read()->decode(Ids{0}); });
}

TEST(TokenizerJson, DecodesStepByStep) {
  File file;
  const auto decode = [&](const Ids& ids, bool keep_special = false) {
    return file.read()->decode(ids, keep_special);
  };
  EXPECT_EQ(decode({0, 9, 3}), "a ab");
  EXPECT_EQ(decode({0, 9, 3}, true), "a <x> ab");
  file.decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"b"},"content":"__"},)"
                 R"({"type":"Fuse"},{"type":"Strip","content":"_","start":1,"stop":3}]})";
  EXPECT_EQ(decode({1, 1, 0, 1, 1}), "___a_");
  EXPECT_EQ(decode({1}), "");
  file.decoder = R"({"type":"Strip","content":"a","start":1,"stop":0})";
  EXPECT_EQ(decode({0, 3, 1}), "bb");
  file.decoder = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  EXPECT_EQ(decode({5, 0, 5, 0}), "a a");
  file.decoder = R"({"type":"BPEDecoder","suffix":"b"})";
  EXPECT_EQ(decode({3, 3}), "a a");
  EXPECT_EQ(decode({10}), "") << "a row of the model that is no token";
  EXPECT_THROW(decode({-1}), Error);
}

struct Wrong {
  const char* name;
  void (*change)(File&);
  const char* says;
};
class BadTokenizerJson : public testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(
    All, BadTokenizerJson,
    testing::Values(
        Wrong{"Normalizer", [](File& f) { f.normalizer = R"({"type":"Magic"})"; }, "normalizer \"Magic\""},
        Wrong{"NormalizerInside",
              [](File& f) { f.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Nmt"}]})"; }, "\"Nmt\""},
        Wrong{"NormalizerKey", [](File& f) { f.normalizer = R"({"type":"NFC","twice":true})"; }, "\"twice\""},
        Wrong{"NormalizerMap", [](File& f) { f.normalizer = R"({"type":"Precompiled","precompiled_charsmap":"?"})"; },
              "base64"},
        Wrong{"NormalizerBadMap",
              [](File& f) { f.normalizer = R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"; }, "damaged"},
        Wrong{"PreTokenizer", [](File& f) { f.pre_tokenizer = R"({"type":"UnicodeScripts"})"; },
              "\"UnicodeScripts\""},
        Wrong{"PreTokenizerRegex",
              [](File& f) {
                f.pre_tokenizer = R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false})";
              },
              "\"(\""},
        Wrong{"PreTokenizerPattern",
              [](File& f) {
                f.pre_tokenizer = R"({"type":"Split","pattern":{"Glob":"*"},"behavior":"Isolated","invert":false})";
              },
              "Glob"},
        Wrong{"PreTokenizerBehavior",
              [](File& f) {
                f.pre_tokenizer = R"({"type":"Split","pattern":{"String":"a"},"behavior":"Shuffled","invert":false})";
              },
              "Shuffled"},
        Wrong{"PreTokenizerScheme",
              [](File& f) { f.pre_tokenizer = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"last"})"; },
              "\"last\""},
        Wrong{"PreTokenizerDelimiter",
              [](File& f) { f.pre_tokenizer = R"({"type":"CharDelimiterSplit","delimiter":"ab"})"; }, "\"ab\""},
        Wrong{"PostProcessor", [](File& f) { f.post_processor = R"({"type":"Glue"})"; }, "post-processor \"Glue\""},
        Wrong{
            "PostProcessorPlace",
            [](File& f) {
              f.post_processor =
                  R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}})";
            },
            "\"B\""},
        Wrong{"PostProcessorNoPlace",
              [](File& f) {
                f.post_processor = R"({"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{}})";
              },
              "no place"},
        Wrong{
            "PostProcessorToken",
            [](File& f) {
              f.post_processor =
                  R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}}],"pair":[],"special_tokens":{}})";
            },
            "<s>"},
        Wrong{"PostProcessorId",
              [](File& f) { f.post_processor = R"({"type":"BertProcessing","sep":["a",-1],"cls":["b",1]})"; }, "-1"},
        Wrong{"Decoder", [](File& f) { f.decoder = R"({"type":"CTC"})"; }, "decoder \"CTC\""},
        Wrong{"DecoderOrder",
              [](File& f) { f.decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteLevel"}]})"; },
              "behind Fuse"},
        Wrong{"Model", [](File& f) { f.model = R"({"type":"WordLevel","vocab":{},"unk_token":"a"})"; },
              "\"WordLevel\""},
        Wrong{"ModelKey", [](File& f) { f.model = R"({"type":"BPE","vocab":{},"merges":[],"magic":1})"; },
              "\"magic\""},
        Wrong{"ModelDropout", [](File& f) { f.model = R"({"type":"BPE","dropout":0.1,"vocab":{},"merges":[]})"; },
              "dropout"},
        Wrong{"ModelUnknown",
              [](File& f) { f.model = R"({"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]})"; }, "\"?\""},
        Wrong{"ModelVocabulary", [](File& f) { f.model = R"({"type":"BPE","vocab":[],"merges":[]})"; }, "vocab"},
        Wrong{"ModelNegativeId", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"; },
              "\"a\""},
        Wrong{"ModelHugeId", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":4194304},"merges":[]})"; },
              "4194304"},
        Wrong{"ModelSameId", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":1,"b":1},"merges":[]})"; },
              "same id 1"},
        Wrong{"MergeOfThree", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":0},"merges":["a a a"]})"; },
              "merges[0]"},
        Wrong{"MergeOfNumbers", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":0},"merges":[[0,0]]})"; },
              "merges[0]"},
        Wrong{"MergeOfStrangers", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"; },
              "\"b\""},
        Wrong{"MergeToStranger", [](File& f) { f.model = R"({"type":"BPE","vocab":{"a":0},"merges":["a a"]})"; },
              "\"aa\""},
        Wrong{"UnigramScore", [](File& f) { f.model = R"({"type":"Unigram","unk_id":0,"vocab":[["a","b"]]})"; },
              "vocab[0]"},
        Wrong{"UnigramUnknown", [](File& f) { f.model = R"({"type":"Unigram","unk_id":1,"vocab":[["a",0.0]]})"; },
              "unk_id"},
        Wrong{
            "WordPieceUnknown",
            [](File& f) {
              f.model =
                  R"({"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"a":0}})";
            },
            "\"?\""},
        Wrong{"AddedKey", [](File& f) { f.added = R"([{"id":9,"content":"x","sticky":true}])"; }, "sticky"},
        Wrong{"AddedId", [](File& f) { f.added = R"([{"id":4194304,"content":"x"}])"; }, "id"},
        Wrong{"AddedLong", [](File& f) { f.added = R"([{"id":9,"content":")" + std::string(2000, 'x') + R"("}])"; },
              "2000 bytes"},
        Wrong{"Key", [](File& f) { f.rest = R"(,"extra":1)"; }, "\"extra\""},
        Wrong{"Truncated", [](File& f) { f.rest = ","; }, "t.json"}),
    [](const auto& test) { return test.param.name; });
TEST_P(BadTokenizerJson, IsRefusedByName) {
  File file;
  GetParam().change(file);
  try {
    file.read();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("t.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
