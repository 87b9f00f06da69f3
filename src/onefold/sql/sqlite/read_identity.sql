-- Which installation is this, at which schema? Run only where onefold_meta is known to exist.
select value, '' from onefold_meta where name = 'identity'
