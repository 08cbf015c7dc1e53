#pragma once
#include <functional>

#include "report.h"

namespace tandem::apps {

/// What a device of several models takes on this machine, instead of a simulated one: real training steps of
/// the paper's six networks, some of them smaller, with all cores. `wants(title)` chooses networks, and `add`
/// takes each figure when it is measured. Each time is a median of `rounds`.
class MuTwoMeasurement {
 public:
  MuTwoMeasurement(std::function<bool(const std::string& title)> wants, std::function<void(Figure)> add,
                   std::vector<Claim>& claims, int rounds);
  /// Fig. 1: time and memory by the degree of fusion.
  void fusion();
  /// Fig. 8: four models with the memory for the activations of two, in which HFTA trains them two by two.
  void systems();

 private:
  std::function<bool(const std::string&)> wants_;
  std::function<void(Figure)> add_;
  std::vector<Claim>& claims_;
  int rounds_;
};

}  // namespace tandem::apps
