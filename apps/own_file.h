#pragma once
#include <string>

namespace tandem::apps {

// Tandem replaces no file but those that it wrote itself, and these say so.

/// What a file is.
enum class Found {
  nothing,  ///< there is none
  own,      ///< Tandem wrote it
  foreign   ///< anything else, also a directory
};

/// Looks at a file that is of a kind. People edit config.toml ("config") and JSON files: they are own if they
/// have the checksum that Tandem gave them. A summary.csv ("table") is own if each line is a row of a run,
/// and a metrics.jsonl ("metrics") if each line is a batch of one. Of other kinds the first bytes count: of
/// "metrics begun" (metrics.jsonl, whatever was added), "events" (TensorBoard's), "collectives", "weights" and
/// "results" (safetensors) and "page" (of a report) they are what only Tandem writes. An empty file is own if its kind
/// grows line by line.
Found look_at(const std::string& file, const std::string& kind);

/// Returns the text of a JSON object with "format": "tandem KIND" as its first entry, and as its second one
/// the "checksum" of what follows. JsonInput passes over both.
std::string with_format(const std::string& kind, const std::string& json);

/// Returns the text of config.toml: a head with the checksum of the flags, and the flags.
std::string config_text(const std::string& flags);

/// The first lines of a report's page, and of summary.csv without the columns that follow.
inline constexpr const char* kPageHead = "<!DOCTYPE html>\n<!-- tandem report -->\n";
inline constexpr const char* kTableHead = "of,epoch,batch,train_loss";

}  // namespace tandem::apps
