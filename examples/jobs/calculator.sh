# A calculator that lacks what it needs.
cat > /dev/null
echo "${1:-full} calculator: missing parameter \`operands\`" >&2
exit 1
