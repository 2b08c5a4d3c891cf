// /v1/load_lora_adapter, /v1/unload_lora_adapter: adapters below the operator's folder, by their names.
#include <algorithm>

#include "weft/base/excerpt.h"
#include "weft/base/file.h"
#include "weft/pretrained/peft.h"
#include "weft/serve/api/handlers.h"

namespace weft::api {
namespace {

constexpr size_t kMostNameBytes = 256;

struct Asked {
  const ServedModel* model = nullptr;
  std::string name, folder;                // folder: as the client calls it
  const char* folder_param = "lora_path";  // which says so
};

// "model" says which of several models it is for.
Asked read(const Context& context, const http::Request& request) {
  Asked asked;
  read_or_refuse([&] {
    const JsonDocument document = body_of(request, context.limits());
    const JsonView body = document.root();
    Plan plan;
    context.choose_model(body, plan);
    asked = {.model = plan.model, .name = body.at("lora_name").string()};
    asked.folder = body.string_or("lora_path", asked.name);
    if (!body.has("lora_path")) asked.folder_param = "lora_name";
  });
  if (asked.model->adapter_folder.empty())
    throw ApiError(403, "this server's adapters are fixed: it was started without --lora-dir", "adapters_are_fixed");
  if (asked.name.empty() || asked.name.size() > kMostNameBytes)
    throw ApiError(400, fmt::format("lora_name: write 1 to {} bytes", kMostNameBytes), {}, "lora_name");
  return asked;
}

// What a client writes is only compared with the names that the operator's folder has; it never becomes a path.
std::string find_folder(const Asked& asked) {
  FileSystem& fs = FileSystem::real();
  for (const std::string& name : list_folder(fs, asked.model->adapter_folder)) {
    const std::string folder = join_path(asked.model->adapter_folder, name);
    if (name == asked.folder && exists(fs, join_path(folder, kPeftConfigName))) return folder;
  }
  throw ApiError(
      404,
      fmt::format("there is no adapter `{}` to load: {} is the name of a folder that the server has, not a path",
                  excerpt(asked.folder, 80), asked.folder_param),
      "adapter_not_found", asked.folder_param);
}

void check_is_free(const Context& context, const std::string& name) {
  for (const ServedModel& model : context.models()) {
    const std::vector<std::string> adapters = model.engine->adapters();
    if (name == model.name || std::ranges::find(adapters, name) != adapters.end())
      throw ApiError(400, fmt::format("there is a model or adapter {} already", excerpt(name, 80)),
                     "adapter_is_loaded", "lora_name");
  }
}

http::Reply success(const std::string& name, std::string_view what) {
  return {.content_type = "text/plain; charset=utf-8",
          .body = fmt::format("Success: LoRA adapter '{}' {} successfully.", name, what)};
}

}  // namespace

void load_adapter(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  const Asked asked = read(context, request);
  check_is_free(context, asked.name);
  asked.model->engine->load_adapter(asked.name, find_folder(asked), [exchange, asked](const std::string& error) {
    exchange->reply(error.empty()
                        ? success(asked.name, "added")
                        : error_reply(ApiError(400, error, "adapter_is_wrong", asked.folder_param), Dialect::openai));
  });
}

void unload_adapter(Context& context, const http::Request& request, const ExchangePointer& exchange) {
  const Asked asked = read(context, request);
  if (!asked.model->engine->unload_adapter(asked.name))
    throw ApiError(404, fmt::format("there is no adapter `{}`", excerpt(asked.name, 80)), "adapter_not_found",
                   "lora_name");
  exchange->reply(success(asked.name, "removed"));
}

}  // namespace weft::api
