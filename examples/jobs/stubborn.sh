# A driver that asks for the calculator in every turn, whatever it is told.
cat > /dev/null
sleep "$(awk "BEGIN { print 8 * ${SANDTIMER_TIME_SCALE:-1} }")"
echo '{"action": "calculate", "input": {"expression": "6 * 7"}}'
