#!/usr/bin/env bash
# The step of the action beside this file, and of any other CI: summary, annotations, report, exit code.
# Environment: BASE, NEW, GATES, ANALYZE, INCONCLUSIVE, HTML as action.yml describes them; GITHUB_STEP_SUMMARY and
# GITHUB_OUTPUT where they exist.
set -uo pipefail
: "${BASE:?the runs of the base}" "${NEW:?the runs to judge}"
analyze=${ANALYZE:-analyze}
gates=()
while IFS= read -r gate; do
  [ -z "${gate// /}" ] || gates+=(--gate "$gate")
done <<<"${GATES:-}"
# Patterns are for analyze to expand, words for the shell to split.
set -f
# shellcheck disable=SC2206
base=($BASE) new=($NEW)
set +f
# Figures once; the formats from them.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$analyze" baseline save "$folder/base" "${base[@]}" >/dev/null && "$analyze" baseline save "$folder/new" "${new[@]}" >/dev/null || exit
sides=("$folder/base" "$folder/new" ${gates[@]+"${gates[@]}"})
"$analyze" compare "${sides[@]}" --format github --html "${HTML:-compare.html}" --force
code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 1 ] && [ "$code" -ne 3 ]; then exit "$code"; fi
"$analyze" compare "${sides[@]}" --format markdown >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}" 2>/dev/null
case $code in
  0) outcome=pass ;;
  1) outcome=regression ;;
  3) outcome=inconclusive ;;
esac
echo "outcome=$outcome" >>"${GITHUB_OUTPUT:-/dev/null}"
if [ "$outcome" = inconclusive ] && [ "${INCONCLUSIVE:-fail}" = warn ]; then exit 0; fi
exit "$code"
