// InstructExample: shapes of JSON, and files of them.
#include "weft/data/instruct_example.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t(1) << 30;  // of an array, or of a line

class ExampleReader {
 public:
  explicit ExampleReader(std::string_view source) : source_(source) {}

  InstructExample read(const Json& json, InstructFormat format) const {
    if (!json.is_object()) fail("an example must be an object");
    if (format == InstructFormat::automatic) format = format_of(json);
    InstructExample example;
    switch (format) {
      case InstructFormat::chat: example = chat(json); break;
      case InstructFormat::alpaca: example = alpaca(json); break;
      default: example = completion(json); break;
    }
    const bool has_answer = std::ranges::any_of(example.messages, &ChatMessage::is_answer);
    if (!has_answer) fail("there is no answer to learn");
    return example;
  }

  InstructExample read_prompt(const Json& json) const {
    if (!json.is_object()) fail("an example must be an object");
    const Json* const prompt = find(json, "prompt");
    if (!prompt && !find(json, "question")) fail("it has neither \"prompt\" nor \"question\"");
    if (!prompt) return {{{"user", text(json, "question")}}};
    if (prompt->is_string()) return {{{"user", prompt->get<std::string>()}}, true};
    if (!prompt->is_array() || prompt->empty()) fail("\"prompt\" must be a text or a list of messages");
    InstructExample example = chat({{"messages", *prompt}});
    for (ChatMessage& m : example.messages) m.is_answer = false;
    if (example.messages.back().role == "assistant") fail("\"prompt\" ends with an answer, and none is asked for");
    return example;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { throw Error("{}: {}", source_, what); }

  InstructFormat format_of(const Json& json) const {
    if (json.contains("messages") || json.contains("conversations")) return InstructFormat::chat;
    if (json.contains("instruction")) return InstructFormat::alpaca;
    if (json.contains("prompt") && json.contains("completion")) return InstructFormat::completion;
    fail(
        "it has none of \"messages\", \"conversations\", \"instruction\", or \"prompt\" with \"completion\"; write "
        "data.format = \"text\" to train on the file as it is");
  }

  const Json* find(const Json& object, const char* key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const Json& object, const char* key) const {
    const Json* value = find(object, key);
    if (!value) fail(fmt::format("\"{}\" is missing", key));
    if (!value->is_string()) fail(fmt::format("\"{}\" must be a text", key));
    return value->get<std::string>();
  }
  std::string text_or_nothing(const Json& object, const char* key) const {
    return find(object, key) ? text(object, key) : std::string();
  }

  // A text, or a list of parts of type "text".
  std::string content(const Json& message) const {
    const Json* value = find(message, "content");
    if (!value || !value->is_array()) return text(message, "content");
    std::string all;
    for (const Json& part : *value) {
      if (!part.is_object() || text_or_nothing(part, "type") != "text")
        fail("\"content\" has a part that is no text, which weft cannot train on");
      all += text(part, part.contains("text") ? "text" : "value");
    }
    return all;
  }
  static bool has_no_weight(const Json& message) {
    for (const char* key : {"loss_weight", "weight"})
      if (const auto found = message.find(key); found != message.end() && found->is_number())
        return found->get<double>() == 0;
    return false;
  }
  std::string role_of(const std::string& name) const {
    struct Alias {
      std::string_view name, role;
    };
    static constexpr Alias kAliases[] = {{"system", "system"},    {"user", "user"},
                                         {"human", "user"},       {"assistant", "assistant"},
                                         {"gpt", "assistant"},    {"tool", "tool"},
                                         {"observation", "tool"}, {"developer", "developer"},
                                         {"model", "assistant"},  {"function_call", "assistant"}};
    for (const Alias& alias : kAliases)
      if (alias.name == name) return std::string(alias.role);
    fail(fmt::format("the role \"{}\" is unknown; write system, user, assistant or tool", name));
  }

  InstructExample chat(const Json& json) const {
    const bool is_share = !json.contains("messages");
    const Json* const list = find(json, is_share ? "conversations" : "messages");
    if (!list || !list->is_array()) fail("\"messages\" must be a list");
    InstructExample example;
    if (const std::string system = text_or_nothing(json, "system"); !system.empty())
      example.messages.push_back({"system", system});
    for (const Json& message : *list) {
      if (!message.is_object()) fail("a message must be an object");
      const bool has_from = message.contains("from");
      ChatMessage m{role_of(text(message, has_from ? "from" : "role")),
                    has_from ? text(message, "value") : content(message)};
      m.is_answer = m.role == "assistant" && !has_no_weight(message);
      example.messages.push_back(std::move(m));
    }
    return example;
  }

  InstructExample alpaca(const Json& json) const {
    InstructExample example;
    if (const std::string system = text_or_nothing(json, "system"); !system.empty())
      example.messages.push_back({"system", system});
    if (const Json* history = find(json, "history")) {
      if (!history->is_array()) fail("\"history\" must be a list of pairs");
      for (const Json& turn : *history) {
        if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
          fail("\"history\" must be a list of pairs of texts");
        example.messages.push_back({"user", turn[0].get<std::string>()});
        example.messages.push_back({"assistant", turn[1].get<std::string>(), true});
      }
    }
    std::string question = text(json, "instruction");
    if (const std::string input = text_or_nothing(json, "input"); !input.empty()) question += "\n" + input;
    example.messages.push_back({"user", std::move(question)});
    example.messages.push_back({"assistant", text(json, "output"), true});
    return example;
  }

  InstructExample completion(const Json& json) const {
    return {{{"user", text(json, "prompt")}, {"assistant", text(json, "completion"), true}}, true};
  }

  std::string_view source_;
};

// Calls visit(line, number) for the lines of a file, without their ends.
void for_each_line(const InputFile& file, const std::string& path,
                   FunctionRef<void(std::string_view line, int64_t number)> visit,
                   FunctionRef<void(int64_t bytes)> read) {
  constexpr uint64_t kPiece = 1 << 20;
  std::string text;
  int64_t number = 0;
  for (uint64_t done = 0; done < file.size();) {
    const size_t held = text.size(), count = size_t(std::min(kPiece, file.size() - done));
    if (held + count > kMostBytes) throw Error("{}, line {}: longer than {} bytes", path, number + 1, kMostBytes);
    text.resize(held + count);
    file.read(std::as_writable_bytes(std::span(text).subspan(held)), done);
    done += count;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', std::max(begin, held))) != std::string::npos || done == file.size();
         begin = end + 1) {
      const bool is_rest = end == std::string::npos;
      std::string_view line = std::string_view(text).substr(begin, is_rest ? std::string::npos : end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      visit(line, ++number);
      if (is_rest) {
        begin = text.size();
        break;
      }
    }
    text.erase(0, begin);
    read(int64_t(count));
  }
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Whether the first character that is no space is a '['.
bool is_array(const InputFile& file) {
  std::string text(size_t(std::min<uint64_t>(file.size(), 4096)), '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '[';
}

}  // namespace

InstructExample parse_example(const nlohmann::json& json, InstructFormat format, std::string_view source) {
  return ExampleReader(source).read(json, format);
}

InstructExample parse_prompt(const nlohmann::json& json, std::string_view source) {
  return ExampleReader(source).read_prompt(json);
}

void for_each_example(FileSystem& fs, const std::string& path, InstructFormat format,
                      FunctionRef<void(const InstructExample&, const std::string&)> visit,
                      FunctionRef<void(int64_t)> read) {
  for_each_json(
      fs, path,
      [&](const nlohmann::json& json, const std::string& place) { visit(parse_example(json, format, place), place); },
      read);
}

void for_each_json(FileSystem& fs, const std::string& path,
                   FunctionRef<void(const nlohmann::json&, const std::string&)> visit,
                   FunctionRef<void(int64_t)> read) {
  const InputFile file(fs, path);
  if (is_array(file)) {
    if (file.size() > kMostBytes)
      throw Error("{} is an array of more than {} bytes: write one example a line instead (JSON lines)", path,
                  kMostBytes);
    std::string text(size_t(file.size()), '\0');
    file.read(std::as_writable_bytes(std::span(text)), 0);
    const Json all = parse_json(text, path, {.max_bytes = kMostBytes, .max_values = int64_t(1) << 28});
    for (size_t i = 0; i < all.size(); ++i) {
      visit(all[i], fmt::format("{}, example {}", path, i + 1));
    }
    return read(int64_t(file.size()));
  }
  for_each_line(
      file, path,
      [&](std::string_view line, int64_t number) {
        if (is_blank(line)) return;
        const std::string place = fmt::format("{}, line {}", path, number);
        visit(parse_json(line, place), place);
      },
      read);
}

}  // namespace weft
