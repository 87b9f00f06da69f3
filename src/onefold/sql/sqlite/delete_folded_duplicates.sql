-- Remove the notes that have been folded.
delete from onefold_duplicate
where number in (select json_extract(value, '$[1]') from json_each(:rows))
