-- Delete the logged duplicates that are in a tally now.
delete from onefold_duplicate
where number in (select json_extract(value, '$[1]') from json_each(:rows))
