// weft plan --import FILE: what weft would do with another program's configuration.
#pragma once
#include "command.h"

namespace weft::app {

struct ImportPlanOptions {
  std::string file, from;            // from: the program; "": seen in the file
  std::string model, data, cluster;  // what the file may leave open
  std::string recipe;                // the file that the recipe is written to; "": it is only shown
};

void plan_import(const ImportPlanOptions& options, const Output& output);

}  // namespace weft::app
