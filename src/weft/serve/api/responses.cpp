// /v1/responses: OpenAI's protocol of typed items and events. Nothing is stored: each request brings its
// conversation.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/serve/api/chat_prompt.h"
#include "weft/serve/api/handlers.h"
#include "weft/serve/api/openai_json.h"

namespace weft::api {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json text_part(std::string_view text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}};
}
json message_item(const std::string& id, json content, const char* status) {
  return {
      {"id", id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", std::move(content)}};
}
json call_item(const NamedCall& call, const std::string& arguments, const char* status) {
  return {{"id", "fc_" + call.id}, {"type", "function_call"}, {"status", status},
          {"call_id", call.id},    {"name", call.call.name},  {"arguments", arguments}};
}
// Of the item at this place of the output.
std::string item_id(const char* kind, const Progress& p, size_t index) {
  return index == 0 ? fmt::format("{}_{}", kind, p.id) : fmt::format("{}_{}_{}", kind, p.id, index);
}
std::string message_id(const Progress& p, size_t index) { return item_id("msg", p, index); }
std::string reasoning_id(const Progress& p, size_t index) { return item_id("rs", p, index); }
json reasoning_part(std::string_view text) { return {{"type", "reasoning_text"}, {"text", text}}; }
// The text itself stands in the content; a summary is of models whose thoughts are hidden.
json reasoning_item(const std::string& id, json content, const char* status) {
  return {{"id", id},
          {"type", "reasoning"},
          {"status", status},
          {"summary", json::array()},
          {"content", std::move(content)}};
}

class ResponsesForm : public ReplyForm {
 public:
  explicit ResponsesForm(json asked) : asked_(std::move(asked)) {}

  std::string begin(const Progress& p) override {
    const json response = response_json(p, "in_progress", json::array());
    std::string text = event("response.created", {{"response", response}});
    return text += event("response.in_progress", {{"response", response}});
  }
  std::string piece(const Progress& p, const Choice&, const Piece& piece) override {
    std::string text;
    if (!piece.reasoning.empty()) {
      text += open_item(p, Open::reasoning);
      text_ += piece.reasoning;
      text += event("response.reasoning_text.delta", at_part(p, {{"delta", piece.reasoning}}));
    }
    if (!piece.content.empty()) {
      text += open_item(p, Open::text);
      text_ += piece.content;
      text +=
          event("response.output_text.delta", at_part(p, {{"delta", piece.content}, {"logprobs", json::array()}}));
    }
    for (const NamedCall& call : piece.calls) {
      text += close_item(p);
      text += call_events(call);
    }
    return text;
  }
  std::string finished(const Progress& p, const Choice& choice) override {
    return close_item(p, status_of_end(choice.reason));
  }
  std::string end(const Progress& p) override {
    return event(is_cut(p.choices.front().reason) ? "response.incomplete" : "response.completed",
                 {{"response", complete(p, output_)}});
  }
  std::string whole(const Progress& p) override {
    const Choice& choice = p.choices.front();
    std::vector<AnswerPart> parts = parts_of(choice);
    if (parts.empty()) parts.push_back({Stretch::Of::content, {}});
    json output = json::array();
    for (const AnswerPart& part : parts) {
      // The last item is what was cut; a call is told only when it is complete.
      const bool is_last = &part == &parts.back();
      const char* const status = is_last ? status_of_end(choice.reason) : "completed";
      const size_t index = output.size();
      if (part.of == Stretch::Of::calls)
        output.push_back(call_item(*part.call, part.call->call.arguments, "completed"));
      else if (part.of == Stretch::Of::reasoning)
        output.push_back(reasoning_item(reasoning_id(p, index), json::array({reasoning_part(part.text)}), status));
      else
        output.push_back(message_item(message_id(p, index), json::array({text_part(part.text)}), status));
    }
    return to_json_text(complete(p, std::move(output)));
  }

 private:
  enum class Open : uint8_t { nothing, reasoning, text };
  static bool is_cut(FinishReason reason) { return reason == FinishReason::length; }
  static const char* status_of_end(FinishReason reason) { return is_cut(reason) ? "incomplete" : "completed"; }
  std::string event(const std::string& type, json body) {
    body["type"] = type;
    body["sequence_number"] = sequence_++;
    return sse_event(to_json_text(body), type);
  }
  json at_part(const Progress& p, json body) const {
    body["item_id"] = open_id(p);
    body["output_index"] = output_.size();
    body["content_index"] = 0;
    return body;
  }

  std::string open_id(const Progress& p) const {
    return open_ == Open::reasoning ? reasoning_id(p, output_.size()) : message_id(p, output_.size());
  }
  json open_part() const { return open_ == Open::reasoning ? reasoning_part(text_) : text_part(text_); }
  json item(const Progress& p, json content, const char* status) const {
    return open_ == Open::reasoning ? reasoning_item(open_id(p), std::move(content), status)
                                    : message_item(open_id(p), std::move(content), status);
  }
  std::string open_item(const Progress& p, Open what) {
    if (open_ == what) return {};
    std::string text = close_item(p);
    open_ = what;
    text += event("response.output_item.added",
                  {{"output_index", output_.size()}, {"item", item(p, json::array(), "in_progress")}});
    return text += event("response.content_part.added", at_part(p, {{"part", open_part()}}));
  }
  std::string close_item(const Progress& p, const char* status = "completed") {
    if (open_ == Open::nothing) return {};
    json done = {{"text", text_}};
    if (open_ == Open::text) done["logprobs"] = json::array();
    std::string text = event(open_ == Open::text ? "response.output_text.done" : "response.reasoning_text.done",
                             at_part(p, std::move(done)));
    text += event("response.content_part.done", at_part(p, {{"part", open_part()}}));
    const json whole = item(p, json::array({open_part()}), status);
    text += event("response.output_item.done", {{"output_index", output_.size()}, {"item", whole}});
    output_.push_back(whole);
    text_.clear();
    open_ = Open::nothing;
    return text;
  }
  std::string call_events(const NamedCall& call) {
    const json item = call_item(call, call.call.arguments, "completed");
    const json place = {{"item_id", item["id"]}, {"output_index", output_.size()}};
    json delta = place, done = place;
    delta["delta"] = call.call.arguments;
    done["arguments"] = call.call.arguments;
    done["name"] = call.call.name;
    std::string text = event("response.output_item.added",
                             {{"output_index", output_.size()}, {"item", call_item(call, "", "in_progress")}});
    text += event("response.function_call_arguments.delta", std::move(delta));
    text += event("response.function_call_arguments.done", std::move(done));
    text += event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
    return text;
  }

  json response_json(const Progress& p, const char* status, json output) const {
    json response = {{"id", "resp_" + p.id},
                     {"object", "response"},
                     {"created_at", p.created},
                     {"status", status},
                     {"model", p.plan.model_name},
                     {"output", std::move(output)},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"instructions", nullptr},
                     {"max_output_tokens", nullptr},
                     {"metadata", json::object()},
                     {"parallel_tool_calls", true},
                     {"previous_response_id", nullptr},
                     {"store", false},
                     {"temperature", p.plan.sampling.temperature},
                     {"top_p", p.plan.sampling.top_p},
                     {"text", {{"format", {{"type", "text"}}}}},
                     {"tool_choice", "auto"},
                     {"tools", json::array()},
                     {"truncation", "disabled"},
                     {"usage", nullptr}};
    response.update(asked_);
    return response;
  }
  json complete(const Progress& p, json output) const {
    const FinishReason reason = p.choices.front().reason;
    json response = response_json(p, status_of_end(reason), std::move(output));
    if (is_cut(reason)) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["usage"] = {
        {"input_tokens", p.usage.prompt_tokens},
        {"input_tokens_details", {{"cached_tokens", std::min(p.usage.cached_tokens, p.usage.prompt_tokens)}}},
        {"output_tokens", p.usage.completion_tokens},
        {"output_tokens_details", {{"reasoning_tokens", p.reasoning_tokens}}},
        {"total_tokens", p.usage.prompt_tokens + p.usage.completion_tokens}};
    return response;
  }

  const json asked_;  // fields of the request that the reply repeats
  int64_t sequence_ = 0;
  json output_ = json::array();  // items that are complete
  std::string text_;             // of the item that is open
  Open open_ = Open::nothing;
};

ordered_json take(ordered_json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : ordered_json();
}

std::string reasoning_of(ordered_json& item) {
  for (const char* key : {"content", "summary"}) {
    std::string text;
    for (ordered_json& part : take(item, key)) {
      const ordered_json one = take(part, "text");
      if (one.is_string()) text += one.get_ref<const std::string&>();
    }
    if (!text.empty()) return text;
  }
  return {};
}

// Parts that are added to a content, which may be a text, parts, or nothing.
void append_content(ordered_json more, ordered_json& content) {
  const auto parts_of = [](ordered_json& one) {
    return one.is_array() ? one : ordered_json::array({{{"type", "text"}, {"text", one}}});
  };
  if (more.is_null()) return;
  if (content.is_null()) {
    content = std::move(more);
    return;
  }
  ordered_json parts = parts_of(content);
  for (ordered_json& part : parts_of(more)) parts.push_back(std::move(part));
  content = std::move(parts);
}

// Items of the input as messages: calls of tools and their results have forms of their own here, and what was thought
// before a message or a call is a part of it. Templates take the calls of one turn in one message, with its text.
class ItemReader {
 public:
  explicit ItemReader(ordered_json& messages) : messages_(messages) {}

  void add(ordered_json& item) {
    const ordered_json type = take(item, "type");
    if (type == "reasoning") {
      reasoning_ += reasoning_of(item);
    } else if (type == "function_call") {
      const ordered_json call = {
          {"id", take(item, "call_id")},
          {"type", "function"},
          {"function", {{"name", take(item, "name")}, {"arguments", take(item, "arguments")}}}};
      add_call(call);
    } else if (type == "function_call_output") {
      add_message({{"role", "tool"}, {"tool_call_id", take(item, "call_id")}, {"content", take(item, "output")}});
    } else if (type.is_null() || type == "message") {
      if (take(item, "role") == "assistant" && ends_with_calls()) {
        append_content(take(item, "content"), messages_.back()["content"]);
        add_reasoning();
      } else {
        add_message({{"role", take(item, "role")}, {"content", take(item, "content")}});
      }
    }  // others are nothing that templates know
  }

 private:
  bool ends_with_calls() const { return !messages_.empty() && messages_.back().contains("tool_calls"); }
  void add_message(ordered_json message) {
    messages_.push_back(std::move(message));
    add_reasoning();
  }
  void add_call(const ordered_json& call) {
    const bool goes_on = !messages_.empty() && messages_.back()["role"] == "assistant";
    if (!goes_on) messages_.push_back({{"role", "assistant"}, {"content", nullptr}});
    messages_.back()["tool_calls"].push_back(call);
    add_reasoning();
  }
  void add_reasoning() {
    const std::string reasoning = std::exchange(reasoning_, {});
    ordered_json& message = messages_.back();
    if (reasoning.empty() || message["role"] != "assistant") return;
    const ordered_json before = take(message, "reasoning_content");
    message["reasoning_content"] = before.is_string() ? before.get<std::string>() + reasoning : reasoning;
  }

  ordered_json& messages_;
  std::string reasoning_;
};

bool is_message(ordered_json& item) {
  const ordered_json type = take(item, "type");
  return type.is_null() || type == "message";
}

// When each item may be left out, lower numbers first and equal ones together; kKept: never. First turns before the
// last question, whole, since templates want questions and answers in turn; then what was thought and done since.
constexpr int64_t kKept = -1;
std::vector<int64_t> order_of_dropping(ordered_json& items) {
  std::vector<int64_t> order(items.size(), kKept);
  std::map<std::string, int64_t> calls;
  size_t question = items.size();
  for (size_t i = 0; i < items.size(); ++i)
    if (is_message(items[i]) && take(items[i], "role") == "user") question = i;
  int64_t next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const ordered_json type = take(items[i], "type"), role = take(items[i], "role"), id = take(items[i], "call_id");
    if (role == "system" || role == "developer") continue;
    const bool is_before = i < question && question < items.size();
    if (type == "function_call_output" && calls.contains(id.dump()))
      order[i] = calls[id.dump()];
    else if (is_before)
      order[i] = next += is_message(items[i]) && role == "user" ? 1 : 0;
    else if (type == "reasoning" || type == "function_call")
      order[i] = ++next;
    if (type == "function_call") calls[id.dump()] = order[i];
  }
  if (const int64_t last = order.empty() ? kKept : order.back(); last != kKept)
    std::ranges::replace(order, last, kKept);  // what the answer is to
  return order;
}

// Without the items that come up to this number.
ordered_json without_items(const ordered_json& body, const std::vector<int64_t>& order, int64_t number) {
  ordered_json rest = body;
  rest["input"] = ordered_json::array();
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] == kKept || order[i] > number) rest["input"].push_back(body["input"][i]);
  return rest;
}

Conversation conversation_of_response(ordered_json body, const JsonView& view) {
  Conversation result;
  result.thinking = read_thinking(view);
  result.template_variables = take(body, "chat_template_kwargs");
  if (const ordered_json instructions = take(body, "instructions"); instructions.is_string())
    result.messages.push_back({{"role", "system"}, {"content", instructions}});
  ordered_json input = take(body, "input");
  if (input.is_string())
    result.messages.push_back({{"role", "user"}, {"content", input}});
  else if (!input.is_array())
    throw ApiError(400, "input: write a text or a list of items", {}, "input");
  ItemReader items(result.messages);
  if (input.is_array()) {
    if (input.empty()) throw ApiError(400, "input: write a list with at least one item", {}, "input");
    for (ordered_json& item : input) items.add(item);
  }
  ordered_json tools = take(body, "tools");
  for (ordered_json& tool : tools) {
    if (take(tool, "type") != "function")
      throw ApiError(400, "tools: only functions are offered", "unsupported", "tools");
    result.tools.push_back({{"type", "function"},
                            {"function",
                             {{"name", take(tool, "name")},
                              {"description", take(tool, "description")},
                              {"parameters", take(tool, "parameters")}}}});
  }
  return result;
}

ToolChoice tool_choice_of_response(const JsonView& body) {
  using Kind = ToolChoice::Kind;
  const bool is_parallel = body.boolean_or("parallel_tool_calls", true);
  if (!body.has("tool_choice")) return {Kind::automatic, {}, is_parallel};
  const JsonView choice = body["tool_choice"];
  const ApiError wrong(400, "tool_choice: write none, auto, required, or a function", {}, "tool_choice");
  if (choice.is_object()) {
    if (choice.string_or("type", "function") != "function") throw wrong;
    return {Kind::named, choice.at("name").string(), is_parallel};
  }
  const std::string word = choice.string();
  if (word == "none") return {Kind::none, {}};
  if (word == "auto") return {Kind::automatic, {}, is_parallel};
  if (word == "required" || word == "any") return {Kind::required, {}, is_parallel};
  throw wrong;
}

void refuse_what_is_stored(const JsonView& body) {
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (body.has(key))
      throw ApiError(400, fmt::format("{}: this server stores no responses; send the whole conversation", key),
                     "unsupported", key);
  }
  if (body.boolean_or("background", false))
    throw ApiError(400, "background: this server stores no responses; wait for the answer, or stream it",
                   "unsupported", "background");
}

// truncation: "auto": the fewest items are left out with which the prompt fits, and an answer of max_output_tokens
// behind it, but for that no more than half of the context.
void plan_response(ordered_json whole, const JsonView& body, std::optional<int64_t> most, const ApiLimits& limits,
                   Plan& plan) {
  const int64_t context = plan.model->engine->limits().context;
  const int64_t room = context - std::clamp<int64_t>(most.value_or(1), 1, std::max<int64_t>(context / 2, 1));
  const ToolChoice choice = tool_choice_of_response(body);
  const auto planned = [&](const ordered_json& items) {
    Plan one = plan;
    plan_chat(conversation_of_response(items, body), choice, limits, one);
    return one;
  };
  Plan best = planned(whole);
  const auto fits = [&](const Plan& one) { return int64_t(one.prompts.front().size()) <= room; };
  if (body.string_or("truncation", "disabled") == "auto" && !fits(best) && whole["input"].is_array()) {
    const std::vector<int64_t> order = order_of_dropping(whole["input"]);
    int64_t too_few = kKept, enough = std::ranges::max(order);
    best = planned(without_items(whole, order, enough));
    while (fits(best) && too_few + 1 < enough) {
      const int64_t middle = too_few + (enough - too_few) / 2;
      Plan one = planned(without_items(whole, order, middle));
      if (!fits(one))
        too_few = middle;
      else
        best = std::move(one), enough = middle;
    }
  }
  plan = std::move(best);
}

// What the reply repeats as it was given.
json asked_fields(const JsonView& body) {
  json asked = json::object();
  for (const char* key : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "text",
                          "tool_choice", "tools", "truncation"}) {
    if (body.has(key)) asked[key] = body[key].raw();
  }
  if (asked.contains("metadata") && !asked["metadata"].is_object())
    throw ApiError(400, "metadata: write an object", {}, "metadata");
  if (asked.contains("truncation") && asked["truncation"] != "auto" && asked["truncation"] != "disabled")
    throw ApiError(400, "truncation: write auto or disabled", {}, "truncation");
  if (!asked.contains("text")) return asked;
  if (!asked["text"].is_object()) throw ApiError(400, "text: write an object", {}, "text");
  if (!body["text"].has("format")) asked["text"]["format"] = {{"type", "text"}};
  return asked;
}

}  // namespace

void responses(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  Plan plan;
  json asked;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    refuse_what_is_stored(body);
    context.choose_model(body, plan);
    read_parameters(body, request.body, context.limits(), plan);
    plan.n = plan.best_of = 1;
    asked = asked_fields(body);
    std::optional<int64_t> most;
    if (body.has("max_output_tokens")) most = body["max_output_tokens"].integer(1, INT32_MAX);
    plan_response(parse_ordered_json(request.body, "the request", context.limits().json), body, most,
                  context.limits(), plan);
    fit_to_context(body, "input", most, plan);
  });
  start_generation(std::move(plan), std::make_unique<ResponsesForm>(std::move(asked)), exchange, context.metrics());
}

}  // namespace weft::api
